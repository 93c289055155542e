"""The in-memory registry: what publishing and consuming need, kept current from the log, and compiled Avro schemas."""

import threading  # threads: a lock with a deadline
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import takewhile
from typing import Any

from rioni.domain.aggregates import AGGREGATES
from rioni.domain.avro.event_schema import EventSchema
from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.errors import EventTypeNotFound, Invalid, NotFound, SubscriptionNotFound, Unavailable
from rioni.domain.event_types.event_type import EventType
from rioni.domain.limits import Limits
from rioni.domain.ports.event_log import EventLog, LogEntry
from rioni.domain.ports.host import ThreadPool
from rioni.domain.publishing.rules import PublishRules
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import SETTINGS, Settings
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timelines
from rioni.domain.timelines.topics import AbandonedTopic, TopicCreation
from rioni.projections.queries import schemas


ENTRIES_PER_READ = 1_000

CHANGES_MAX = 10_000
"""How many changes are remembered for `changed_since`."""

CATCH_UP_WAIT_S = 15.0
"""How long a request waits for another one that reads the changes."""
COMPILING_WAIT_S = 30.0
"""How long a request waits for another one that compiles the same schema."""

_NO_SETTINGS = Settings()


class MemoryRegistry:
    """Implements the port `Registry`, one per process.

    Before every use `refresh` asks the log for its last position, which is cheap, and applies new entries: whatever was
    answered to any client before is visible here, without a cache that could be stale.
    """

    def __init__(
        self,
        log: EventLog,
        limits: Limits,
        pool: ThreadPool,
        compute: ThreadPool,
        compiled: CompiledCache[PublishRules],
    ) -> None:
        """Begin before the first entry of the log.

        Args:
            log: the log to follow.
            limits: the limits of published events.
            pool: runs calls that wait for the database.
            compute: runs the compiling of schemas.
            compiled: keeps the rules of event types.
        """
        self.position = 0
        """The log position that has been applied."""
        self._log = log
        self._limits = limits
        self._pool, self._compute = pool, compute
        self._lock = threading.Lock()
        self._states: dict[str, dict[str, object]] = {kind: {} for kind in AGGREGATES}
        self._rules = compiled
        self._compiling: dict[str, threading.Event] = {}
        """The event types whose rules are being compiled."""
        self._changes: deque[tuple[int, str, str]] = deque(maxlen=CHANGES_MAX)
        """Position, kind and key of the last changes that were applied."""
        self._changes_begin = 0
        """The position after which all changes are remembered."""

    def load(self, states: Iterable[tuple[str, str, object]], position: int) -> None:
        """Start from states at a position rather than from the beginning of the log."""
        for kind, key, state in states:
            self._states[kind][key] = state
        self.position = self._changes_begin = position

    def changed_since(self, position: int) -> Collection[tuple[str, str]] | None:
        """Return kinds and keys of resources changed after a position; None if that is too long ago."""
        if position < self._changes_begin:
            return None
        newest_first = takewhile(lambda change: change[0] > position, reversed(self._changes))
        return {(kind, key) for _, kind, key in newest_first}

    def refresh(self) -> None:
        """Catch up with the log."""
        if self._log.position() > self.position:
            self._catch_up()

    def catch_up(self) -> None:
        """Catch up to the last notified position; asks the database only if something was changed."""
        if self._log.last_notified_position() > self.position:
            self._catch_up()

    def _catch_up(self) -> None:
        if not self._lock.acquire(timeout=CATCH_UP_WAIT_S):
            raise Unavailable("The database takes too long to report changes. Try again later.")
        try:
            while entries := self._pool(self._log.entries, self.position, ENTRIES_PER_READ):
                for entry in entries:
                    self._apply(entry)
        finally:
            self._lock.release()

    def _apply(self, entry: LogEntry) -> None:
        event = entry.event
        states = self._states[event.kind]
        state = AGGREGATES[event.kind].evolve(states.get(event.key), event)
        if state is None:
            states.pop(event.key, None)
        else:
            states[event.key] = state
        if event.kind in ("event-type", "timeline"):
            self._rules.drop(event.key)
        if len(self._changes) == CHANGES_MAX:
            self._changes_begin = self._changes[0][0]
        self._changes.append((entry.position, event.kind, event.key))
        self.position = entry.position

    @property
    def settings(self) -> Settings:
        """The broker's settings."""
        state = self._states["settings"].get(SETTINGS)
        return state if isinstance(state, Settings) else _NO_SETTINGS

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions."""
        return [state for state in self._states["subscription"].values() if isinstance(state, Subscription)]

    def event_types(self) -> list[EventType]:
        """All event types."""
        return [state for state in self._states["event-type"].values() if isinstance(state, EventType)]

    def event_type(self, name: str) -> EventType:
        """The event type, or EventTypeNotFound."""
        state = self._states["event-type"].get(name)
        if not isinstance(state, EventType):
            raise EventTypeNotFound(name)
        return state

    def timelines(self, name: str) -> Timelines:
        """The timelines of an event type, or EventTypeNotFound."""
        state = self._states["timeline"].get(name)
        if not isinstance(state, Timelines):
            raise EventTypeNotFound(name)
        return state

    def subscription(self, subscription_id: str) -> Subscription:
        """The subscription, or SubscriptionNotFound."""
        state = self._states["subscription"].get(subscription_id)
        if not isinstance(state, Subscription):
            raise SubscriptionNotFound(subscription_id)
        return state

    def storage(self, storage_id: str) -> StorageEntry | None:
        """The storage, if there is one."""
        state = self._states["storage"].get(storage_id)
        return state if isinstance(state, StorageEntry) else None

    def storages(self) -> list[StorageEntry]:
        """All storages."""
        return [state for state in self._states["storage"].values() if isinstance(state, StorageEntry)]

    def abandoned_topics(self) -> list[AbandonedTopic]:
        """All topics that are to be deleted."""
        return [state for state in self._states["topic"].values() if isinstance(state, AbandonedTopic)]

    def topic_creations(self) -> list[TopicCreation]:
        """All topics that are being created for new event types."""
        return [state for state in self._states["topic-creation"].values() if isinstance(state, TopicCreation)]

    def publish_rules(self, name: str) -> PublishRules:
        """The rules for publishing to an event type, compiled on the first call; concurrent callers wait for it.

        Raises:
            EventTypeNotFound: there is no such event type.
            Unavailable: compiling takes too long.
        """
        while (rules := self._rules.get(name)) is None:
            if (compiled := self._compiling.get(name)) is None:
                return self._compile(name)
            if not compiled.wait(COMPILING_WAIT_S):
                raise Unavailable("Compiling the schema of the event type takes too long. Try again later.")
        return rules

    def _compile(self, name: str) -> PublishRules:
        event_type, timelines = self.event_type(name), self.timelines(name)
        build = partial(PublishRules.of, event_type, partitions=timelines.active.partitions, limits=self._limits)
        self._compiling[name] = compiled = threading.Event()
        try:
            rules = self._compute(build)
            # Kept for the next caller, unless they are outdated by now.
            if (self._states["event-type"].get(name), self._states["timeline"].get(name)) == (event_type, timelines):
                self._rules.put(name, rules, rules.bytes_)
        finally:
            del self._compiling[name]
            compiled.set()
        return rules


# --- The Avro schemas of event types, compiled: those of all versions, as publishers may use any of them ---

COMPILED_BYTES, COMPILED_BYTES_PER_CHARACTER = 5_000, 25
"""PERF: memory of a compiled schema by the length of its text: 19 bytes with a thousand fields."""


class CompiledAvroSchemas:
    """Implements the port `AvroSchemas`, one per process.

    A version never changes while its event type lives; its creation time distinguishes it from that of a recreated
    event type.
    """

    def __init__(
        self, read: Callable[..., Any], pool: ThreadPool, bytes_max: int, compiled: CompiledCache[EventSchema]
    ) -> None:
        """Begin with none.

        Args:
            read: `read(query, ...)` calls `query(connection, ...)` with a connection to the read models.
            pool: runs reading and compiling.
            bytes_max: maximum length of an event's JSON.
            compiled: keeps the schemas.
        """
        self._read = read
        self._pool = pool
        self._bytes_max = bytes_max
        self._kept = compiled

    def of(self, event_type: EventType, version: str) -> EventSchema:
        """The schema, compiled on the first call."""
        key = event_type.name, event_type.created_at, version
        found = self._kept.get(key)
        return self._pool(self._compile, key) if found is None else found

    def _compile(self, key: tuple[str, str, str]) -> EventSchema:
        # Others may have waited for the pool with the same wish.
        if (found := self._kept.get(key)) is not None:
            return found
        name, _, version = key
        schema = self._read(schemas.find, name, version)
        if schema is None:
            raise NotFound(f'EventType "{name}" has no schema with version "{version[:100]}"')
        if schema.type != "avro_schema":
            raise Invalid(
                f'version "{version}" of the schema of EventType "{name}" is a {schema.type}: publish in JSON'
            )
        compiled = EventSchema(schema.schema, self._bytes_max)
        self._kept.put(key, compiled, COMPILED_BYTES + COMPILED_BYTES_PER_CHARACTER * len(schema.schema))
        return compiled
