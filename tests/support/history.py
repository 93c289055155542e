"""Generates histories of the broker: random, valid, of every aggregate; for tests and for the benchmarks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from rioni.domain.access.authorization import Attribute, EventTypeAuthorization, SubscriptionAuthorization
from rioni.domain.event_types.event_type import (
    EventType,
    EventTypeChanged,
    EventTypeCreated,
    EventTypeDeleted,
    Options,
    Schema,
    SchemaAdded,
)
from rioni.domain.events import DomainEvent, Origin
from rioni.domain.ports.event_log import LogEntry
from rioni.domain.subscriptions.subscription import (
    Subscription,
    SubscriptionChanged,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionKeyClaimed,
    SubscriptionKeyReleased,
)
from rioni.domain.system.settings import (
    BLACKLIST_TYPES,
    FEATURES,
    Admins,
    AdminsChanged,
    BlacklistEntryAdded,
    BlacklistEntryRemoved,
    FeatureSwitched,
)
from rioni.domain.system.storages import (
    STORAGE_TYPES,
    DefaultStorageChanged,
    StorageCreated,
    StorageDeleted,
    StorageEntry,
    StorageMoved,
)
from rioni.domain.timelines.timeline import (
    Timeline,
    TimelineCleanedUp,
    TimelineDigested,
    TimelineOpened,
    TimelinesDeleted,
    TimelinesRepartitioned,
    TimelineSwitchAborted,
    TimelineSwitched,
    TimelineSwitchStarted,
)


Command = tuple[Origin, Sequence[DomainEvent]]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ("order", "parcel", "größe", "ціна", "価格", 'quo"te', "back\\slash", "line\nbreak", "tab\t", "🛫", "'; --", "")

# How often each command happens: most of a registry's history is changes.
WEIGHTS = {
    "create_event_type": 6,
    "change_event_type": 24,
    "add_schema": 14,
    "open_timeline": 2,
    "change_timelines": 2,
    "delete_event_type": 1,
    "create_subscription": 18,
    "change_subscription": 26,
    "delete_subscription": 6,
    "change_settings": 2,
    "create_storage": 1,
    "change_storage": 1,
}


class Author:
    """Generates valid random commands, one after the other.

    Args:
        random: where every choice comes from.
        seconds_between: the mean time between two commands.
        properties: how many properties a schema has; 10 make about 1 kB.
    """

    def __init__(self, random: Random, *, seconds_between: int = 600, properties: int = 3) -> None:
        self._random = random
        self._seconds_between = seconds_between
        self._properties = properties
        self._time = BEGIN
        self._serial = 0
        self._event_types: dict[str, EventType] = {}
        self._timelines: dict[str, int] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._blacklist: list[tuple[str, str]] = []
        self._storages: list[str] = []
        self._names: list[str] = []
        self._ids: list[str] = []
        self._actions: dict[str, Callable[[], list[DomainEvent]]] = {
            name: getattr(self, f"_{name}") for name in WEIGHTS
        }

    def command(self, action: str | None = None) -> Command:
        """The next command's origin and events; `action` is one of `WEIGHTS`, or random."""
        if action is None:
            (action,) = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self._serial += 1
        self._time += timedelta(milliseconds=self._random.randrange(1, 2_000 * self._seconds_between))
        origin = Origin(
            actor=self._random.choice(("unauthenticated", "rioni", "stups_shop", "jürgen")),
            client=self._client(),
            flow_id=f"flow-{self._serial}",
            command_id=self._uuid(),
            recorded_at=self._now(),
        )
        return origin, self._actions[action]()

    def _client(self) -> str:
        network, host = self._random.randrange(4), self._random.randrange(256)
        # `rioni.domain.events.client_text` explains the parts.
        return f"10.0.{network}.{host}" + ("", " curl/8.5.0", "\nservices", " a b\nemployees")[host % 4]

    def commands(self) -> Iterator[Command]:
        """An endless sequence of commands."""
        while True:
            yield self.command()

    def _now(self) -> str:
        return self._time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _uuid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def _word(self) -> str:
        return self._random.choice(WORDS)

    def _attributes(self) -> tuple[Attribute, ...]:
        return tuple(
            Attribute("service", f"app-{self._random.randrange(50)}") for _ in range(self._random.randrange(1, 4))
        )

    def _schema(self, major: int) -> Schema:
        properties = {
            f"field_{number}": {"type": "string", "description": f"{self._word()} {number} of what has happened " * 2}
            for number in range(self._properties)
        }
        text = msgspec.json.encode({"title": self._word(), "properties": properties}).decode()
        return Schema(type="json_schema", schema=text, version=f"{major}.0.0", created_at=self._now())

    # --- event types and their timelines ---

    def _create_event_type(self) -> list[DomainEvent]:
        # Names are reused: a deleted event type may be created again.
        name = f"shop-{self._random.randrange(1 + self._serial // 8)}.order-{self._random.randrange(4)}.created"
        if name in self._event_types:
            return self._change_event_type()
        event_type = EventType(
            name=name,
            owning_application=self._word(),
            category="business",
            enrichment_strategies=("metadata_enrichment",),
            partition_strategy="hash",
            partition_key_fields=("id",),
            cleanup_policy="delete",
            ordering_key_fields=(),
            ordering_instance_ids=(),
            schema=self._schema(1),
            default_statistic=None,
            options=Options(retention_time=172_800_000),
            authorization=EventTypeAuthorization(
                admins=self._attributes(), readers=self._attributes(), writers=self._attributes()
            ),
            annotations={},
            labels={},
            compatibility_mode="forward",
            updated_at=self._now(),
            created_at=self._now(),
        )
        self._event_types[name] = event_type
        self._timelines[name] = 0
        self._names.append(name)
        return [EventTypeCreated(name=name, event_type=event_type), self._timeline(name)]

    def _some_event_type(self) -> EventType | None:
        return self._event_types[self._random.choice(self._names)] if self._names else None

    def _change_event_type(self) -> list[DomainEvent]:
        if (event_type := self._some_event_type()) is None:
            return self._create_event_type()
        changed = msgspec.structs.replace(
            event_type,
            annotations={"note": f"{self._word()} {self._serial}"},
            labels={"team": f"team-{self._random.randrange(9)}"},
            updated_at=self._now(),
        )
        self._event_types[changed.name] = changed
        return [EventTypeChanged(name=changed.name, event_type=changed)]

    def _add_schema(self) -> list[DomainEvent]:
        if (event_type := self._some_event_type()) is None:
            return self._create_event_type()
        schema = self._schema(int(event_type.schema.version.partition(".")[0]) + 1)
        self._event_types[event_type.name] = msgspec.structs.replace(
            event_type, schema=schema, updated_at=schema.created_at
        )
        return [SchemaAdded(name=event_type.name, schema=schema)]

    def _delete_event_type(self) -> list[DomainEvent]:
        if (event_type := self._some_event_type()) is None:
            return self._create_event_type()
        self._names.remove(event_type.name)
        del self._event_types[event_type.name]
        return [TimelinesDeleted(event_type=event_type.name), EventTypeDeleted(name=event_type.name)]

    def _open_timeline(self) -> list[DomainEvent]:
        event_type = self._some_event_type()
        return self._create_event_type() if event_type is None else [self._timeline(event_type.name)]

    def _change_timelines(self) -> list[DomainEvent]:
        event_type = self._some_event_type()
        if event_type is None:
            return self._create_event_type()
        name = event_type.name
        order = self._timelines[name]
        match self._random.randrange(5):
            case 0:
                timeline = self._timeline(name).timeline
                latest = tuple(self._random.randrange(-1, 99) for _ in range(timeline.partitions))
                return [
                    TimelineSwitchStarted(event_type=name, timeline=timeline, worker=self._uuid()),
                    TimelineSwitched(event_type=name, timeline=timeline, latest_position=latest),
                ]
            case 1:
                timeline = self._timeline(name).timeline
                self._timelines[name] = order
                return [
                    TimelineSwitchStarted(event_type=name, timeline=timeline, worker=self._uuid()),
                    TimelineSwitchAborted(event_type=name, timeline_id=timeline.id, reason=self._word()),
                ]
            case 2:
                return [TimelineCleanedUp(event_type=name, order=order - 1, cleaned_up_at=self._now())]
            case 3:
                next_ = (self._random.randrange(99),)
                return [
                    TimelineDigested(
                        event_type=name, order=order, storage="default", topic=self._uuid(), blocks=(), next=next_
                    )
                ]
            case _:
                return [TimelinesRepartitioned(event_type=name, partitions=self._random.randrange(9, 20))]

    def _timeline(self, name: str) -> TimelineOpened:
        self._timelines[name] += 1
        timeline = Timeline(
            id=self._uuid(),
            event_type=name,
            order=self._timelines[name],
            storage_id="default",
            topic=self._uuid(),
            partitions=self._random.randrange(1, 9),
            created_at=self._now(),
            switched_at=self._now(),
        )
        return TimelineOpened(event_type=name, timeline=timeline)

    # --- subscriptions ---

    def _create_subscription(self) -> list[DomainEvent]:
        if not self._names:
            return self._create_event_type()
        names = {self._random.choice(self._names) for _ in range(self._random.randrange(1, 4))}
        subscription = Subscription(
            id=self._uuid(),
            owning_application=f"reader {self._word()}",
            event_types=tuple(sorted(names)),
            consumer_group=f"group-{self._serial}",
            read_from="end",
            initial_cursors=(),
            created_at=self._now(),
            updated_at=self._now(),
            authorization=SubscriptionAuthorization(admins=self._attributes(), readers=self._attributes()),
            annotations={},
            labels={},
        )
        self._subscriptions[subscription.id] = subscription
        self._ids.append(subscription.id)
        return [
            SubscriptionKeyClaimed(natural_key=subscription.natural_key, subscription_id=subscription.id),
            SubscriptionCreated(id=subscription.id, subscription=subscription),
        ]

    def _change_subscription(self) -> list[DomainEvent]:
        if not self._ids:
            return self._create_subscription()
        changed = msgspec.structs.replace(
            self._subscriptions[self._random.choice(self._ids)],
            annotations={"note": f"{self._word()} {self._serial}"},
            authorization=SubscriptionAuthorization(admins=self._attributes(), readers=self._attributes()),
            updated_at=self._now(),
        )
        self._subscriptions[changed.id] = changed
        return [SubscriptionChanged(id=changed.id, subscription=changed)]

    def _delete_subscription(self) -> list[DomainEvent]:
        if not self._ids:
            return self._create_subscription()
        # The last one takes the place of the deleted one: removing from the middle would make long histories slow.
        index = self._random.randrange(len(self._ids))
        self._ids[index], self._ids[-1] = self._ids[-1], self._ids[index]
        subscription = self._subscriptions.pop(self._ids.pop())
        return [SubscriptionDeleted(id=subscription.id), SubscriptionKeyReleased(natural_key=subscription.natural_key)]

    # --- settings and storages ---

    def _change_settings(self) -> list[DomainEvent]:
        match self._random.randrange(4):
            case 0:
                return [AdminsChanged(admins=Admins(admins=self._attributes(), writers=self._attributes()))]
            case 1:
                entry = (self._random.choice(BLACKLIST_TYPES), f"app-{self._random.randrange(20)}")
                if entry not in self._blacklist:
                    self._blacklist.append(entry)
                    return [BlacklistEntryAdded(type=entry[0], name=entry[1])]
                self._blacklist.remove(entry)
                return [BlacklistEntryRemoved(type=entry[0], name=entry[1])]
            case _:
                return [FeatureSwitched(feature=self._random.choice(FEATURES), enabled=self._random.random() < 0.5)]

    def _create_storage(self) -> list[DomainEvent]:
        storage = StorageEntry(id=f"storage-{self._serial}", storage_type="embedded", default=False)
        self._storages.append(storage.id)
        return [StorageCreated(id=storage.id, storage=storage)]

    def _change_storage(self) -> list[DomainEvent]:
        if not self._storages:
            return self._create_storage()
        if self._random.random() < 0.5:
            return [DefaultStorageChanged(id=self._storages[-1], default=self._random.random() < 0.5)]
        if self._random.random() < 0.5:
            return [StorageMoved(id=self._storages[-1], storage_type=self._random.choice(STORAGE_TYPES))]
        return [StorageDeleted(id=self._storages.pop())]


def entries(commands: Iterable[Command], *, first: int = 1) -> Iterator[LogEntry]:
    """The log entries that commands result in.

    Args:
        commands: a whole history: the versions of the streams are counted from here.
        first: the position of the first entry.
    """
    versions: dict[UUID, int] = {}
    position = first
    for origin, events in commands:
        for event in events:
            stream = event.stream
            version = versions[stream] = versions.get(stream, 0) + 1
            yield LogEntry(position=position, stream=stream, version=version, event=event, origin=origin)
            position += 1


def histories(commands_max: int = 60) -> st.SearchStrategy[list[Command]]:
    """A strategy for whole histories; they shrink by leaving out commands."""

    def write(actions: list[str], seed: int) -> list[Command]:
        author = Author(Random(seed))
        return [author.command(action) for action in actions]

    actions = st.lists(st.sampled_from(list(WEIGHTS)), max_size=commands_max)
    return st.builds(write, actions, st.integers(0, 2**32 - 1))
