"""Unit of work of one command: its context, the aggregates that it loads, its events and effects, its work outside."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from rioni.commands.authorization import Grants
from rioni.domain.access.authorization import Attribute, Subject, permits
from rioni.domain.errors import EventTypeNotFound, RioniError, SubscriptionNotFound, Unavailable
from rioni.domain.event_types.event_type import EventType
from rioni.domain.events import DomainEvent, Origin
from rioni.domain.limits import Limits
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_log import LogEntry, LogTransaction, ReadModels
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import ThreadPool
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import SETTINGS, Settings
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timelines


# --- Context of a command (subject and time), and its work outside transactions ---


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of one command, stored with every event that it yields."""

    subject: Subject
    origin: Origin

    @property
    def now(self) -> str:
        """The time of the command, RFC 3339 with milliseconds."""
        return self.origin.recorded_at

    @property
    def topic(self) -> str:
        """The id of the topic that the command creates, if it creates one."""
        return self.derive_id("topic")

    def derive_id(self, purpose: str) -> str:
        """An id for something that the command creates; deterministic, so the same if the command is run again."""
        return str(uuid5(UUID(self.origin.command_id), purpose))


class Outside(NamedTuple):
    """Returned by a handler that needs work outside the transaction before it can continue.

    The events that it has recorded are committed before the work begins. If the work, or a later step, fails or never
    happens because the process dies, the log shows what is unfinished, and a periodic job completes it or rolls it
    back.
    """

    work: Callable[[], Any]
    """Does the work and returns the next command, which runs in the same context. May block and raise."""
    undo: Callable[[BaseException], Any] | None = None
    """Given the error of the work or of the next command, returns the command that rolls back the recorded events.
    None: there are no such events, or they are to be kept."""


# --- Collects per-item errors so that the remaining items are processed, and raises them at the end ---


class ErrorCollector:
    """Collects errors by item."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Collect an expected error of the block under a name, and suppress it."""
        try:
            yield
        except RioniError as ex:
            self._reasons.append(f"{what}: {ex}")

    def report(self) -> None:
        """Raise one error that names all collected ones, if there are any.

        Raises:
            Unavailable: something failed.
        """
        if self._reasons:
            raise Unavailable("; ".join(self._reasons))


# --- Unit of work of one command: loads aggregates, collects events, registers external effects ---


class UnitOfWork:
    """Unit of work of one command, inside its transaction: recorded events are visible to its later reads."""

    def __init__(  # noqa: PLR0913 - what all commands need
        self,
        transaction: LogTransaction,
        context: CommandContext,
        *,
        models: ReadModels,
        stores: EventStores,
        coordinator: Coordinator,
        compute: ThreadPool,
        limits: Limits,
        default_admin: Attribute,
        auditors: Sequence[Attribute] = (),
    ) -> None:
        self.context = context
        self.stores = stores
        """The stores, for work after the transaction: no store is called within."""
        self.coordinator = coordinator
        """The coordinator, for work after the transaction; only `worker` is available without a call."""
        self.compute = compute
        """Runs slow checks, outside of the transaction."""
        self.limits = limits
        self.after_commit: list[Callable[[], None]] = []
        """External effects, run only after the events are committed."""
        self._transaction = transaction
        self._models = models
        self._default_admin, self._auditors = default_admin, auditors

    @property
    def subject(self) -> Subject:
        """The subject that issued the command."""
        return self.context.subject

    def find(self, kind: str, key: str) -> Any:
        """The state of an aggregate, or None."""
        return self._models.state(self._transaction.connection, kind, key)[0]

    def event_type(self, name: str) -> EventType:
        """The event type, or EventTypeNotFound."""
        state: EventType | None = self.find("event-type", name)
        if state is None:
            raise EventTypeNotFound(name)
        return state

    def timelines(self, name: str) -> Timelines:
        """The timelines of an event type, or EventTypeNotFound."""
        state: Timelines | None = self.find("timeline", name)
        if state is None:
            raise EventTypeNotFound(name)
        return state

    def subscription(self, subscription_id: str) -> Subscription:
        """The subscription, or SubscriptionNotFound."""
        state: Subscription | None = self.find("subscription", subscription_id)
        if state is None:
            raise SubscriptionNotFound(subscription_id)
        return state

    def subscriptions_of(self, event_type: str) -> Sequence[Subscription]:
        """All subscriptions to an event type."""
        return self._models.subscriptions_of(self._transaction.connection, event_type)

    def storages(self) -> Sequence[StorageEntry]:
        """All storages by id."""
        return self._models.storages(self._transaction.connection)

    def default_storage(self) -> StorageEntry:
        """The storage in which new event types begin."""
        return next(storage for storage in self.storages() if storage.default)

    def holds_events(self, storage_id: str) -> bool:
        """Whether a storage has a timeline that was not cleaned up."""
        timelines = self._models.timelines_in(self._transaction.connection, storage_id)
        return any(timeline.cleaned_up_at is None for timeline in timelines)

    def topics_in(self, storage_id: str) -> set[str]:
        """The topics of all timelines in a storage, except the next ones of switches in progress."""
        timelines = self._models.timelines_in(self._transaction.connection, storage_id)
        return {timeline.topic for timeline in timelines}

    def settings(self) -> Settings:
        """The broker's settings."""
        return self.find("settings", SETTINGS) or Settings()

    @property
    def grants(self) -> Grants:
        """The lists that grant rights to the broker, event types and subscriptions."""
        return Grants(admins=self.settings().admins, default_admin=self._default_admin)

    def is_admin(self, operation: str) -> bool:
        """Whether the subject administers the broker, for READ, WRITE or ADMIN."""
        return permits(self.grants.broker(operation), self.subject)

    def is_auditor(self) -> bool:
        """Whether the subject is an auditor: listed among those who read the history, and not unrestricted."""
        return not self.subject.unrestricted and permits(self._auditors, self.subject)

    def record(self, *events: DomainEvent) -> None:
        """Append events, each to its own stream, and fold them into the read models."""
        entries: list[LogEntry] = []
        versions = {
            event.stream: self._models.state(self._transaction.connection, event.kind, event.key)[1] for event in events
        }
        for event in events:
            entries += self._transaction.append(event.stream, versions[event.stream], [event], self.context.origin)
            versions[event.stream] += 1
        self._models.apply(self._transaction.connection, entries)
