"""Records every store's position regularly, to detect replaced stores at the next start."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from rioni.commands.job_runner import LoggedJobRunner
from rioni.domain.errors import Unavailable
from rioni.domain.system.anchors import Anchor, Anchored, Marked
from rioni.domain.system.storages import EMBEDDED
from rioni.installation.infrastructure import Infrastructure
from rioni.storage.sql.engines import reading
from rioni.storage.sql.store_marks import (
    ZOOKEEPER,
    accepted_mark,
    cluster_mark,
    installation_id,
    raise_marks,
    read_marks,
    topic_mark,
    write_marks,
)


NOTE_EVERY_S = 5.0
"""Interval of recording positions; events published in the last seconds before a crash are not covered."""


class StoreMarks:
    """Anchors all stores of a process, and stores their marks in the registry's database."""

    def __init__(self, base: Infrastructure) -> None:
        """Read the recorded marks; blocks."""
        self._base = base
        self._engine = base.log.engine
        self._installation = base.pools.database(installation_id, self._engine)
        self._written = base.pools.database(self._read)
        self._runner = LoggedJobRunner()
        self._due_at_s = base.clock.monotonic()
        self._complete = False
        self._known = _Topics(-1, (), frozenset())
        self._ends: dict[str, dict[int, int]] = {}
        """End positions appended to Kafka topics by this process and not recorded yet, by mark."""

    def tick(self) -> None:
        """Record changed positions, at intervals; failures are logged.

        Each process records its own appends to Kafka; the leader records everything else.
        """
        if self._base.clock.monotonic() < self._due_at_s:
            return
        self._due_at_s = self._base.clock.monotonic() + NOTE_EVERY_S
        if self._base.adapters.leadership.held():
            self.note(everything=not self._complete)
            self._complete = True
        else:
            self._runner.run("recording positions of the Kafka topics", self._note_appended)

    def note(self, *, everything: bool) -> None:
        """Anchor all stores and write the marks that have changed; failures are logged.

        Args:
            everything: whether to write all marks, not only those that may have changed since the last call.
        """
        self._runner.run("recording positions of the Kafka topics", self._note_appended)
        self._runner.run("recording positions of the stores", partial(self._note, everything=everything))
        self._runner.run("recording the position of ZooKeeper", self._note_zookeeper)

    def _note_zookeeper(self) -> bool:
        sequence = self._base.adapters.advance(self._installation)
        if sequence is not None:
            self._base.pools.database(raise_marks, self._engine, {ZOOKEEPER: {0: sequence}}, {})
        return sequence is not None

    def _note_appended(self) -> bool:
        """Raise the marks of the Kafka topics that this process has appended to; False if it has appended to none."""
        clusters: dict[str, str] = {}
        for storage_id, store in self._base.adapters.stores.opened().items():
            if isinstance(store, Marked) and (taken := store.take_ends()) is not None:
                clusters[cluster_mark(storage_id)], ends = taken
                self._raise(self._ends, {topic_mark(topic): each for topic, each in ends.items()})
        if not self._ends:
            return False
        writing, self._ends = self._ends, {}
        try:
            other = self._base.pools.database(raise_marks, self._engine, writing, clusters)
        except BaseException:
            self._raise(self._ends, writing)
            raise
        if other:
            raise Unavailable(f"A different Kafka cluster responds than before; the next start will fail: {other}.")
        return True

    @staticmethod
    def _raise(known: dict[str, dict[int, int]], ends: Mapping[str, Mapping[int, int]]) -> None:
        for name, each in ends.items():
            numbers = known.setdefault(name, {})
            numbers |= {number: max(next_, numbers.get(number, 0)) for number, next_ in each.items()}

    def _note(self, *, everything: bool) -> None:
        base = self._base
        base.registry.refresh()
        anchor = Anchor(self._installation, base.pools.database(base.log.head))
        topics = self._topics()
        if everything:
            self._written = base.pools.database(self._read)
        marks: dict[str, str] = {}

        def note(store: object) -> None:
            if isinstance(store, Anchored):
                marks.update(store.anchor(anchor, everything=everything))

        def note_storage(storage_id: str) -> None:
            note(base.adapters.stores.of(storage_id))

        for storage_id in topics.embedded:
            what = f"recording positions of storage {storage_id}"
            self._runner.run(what, partial(note_storage, storage_id))
        note(base.adapters.coordinator)
        marks = {name: value for name, value in marks.items() if not topics.lack(name)}
        changed = {name: value for name, value in marks.items() if self._written.get(name) != value}
        removed = {name for name in self._written if topics.lack(name)} if everything else set[str]()
        if changed or removed:
            base.pools.database(write_marks, self._engine, changed, removed)
            self._written.update(changed)
            for name in removed:
                del self._written[name]

    def _topics(self) -> "_Topics":
        registry = self._base.registry
        # PERF: 10,000 event types take some milliseconds of the hub.
        if self._known.position != registry.position:
            embedded = {storage.id for storage in registry.storages() if storage.storage_type == EMBEDDED}
            timelines = [
                timeline
                for event_type in registry.event_types()
                for timeline in registry.timelines(event_type.name).readable
            ]
            self._known = _Topics(
                registry.position,
                # Kafka storages have no anchor, and are not opened needlessly.
                {timeline.storage_id for timeline in timelines} & embedded,
                frozenset(timeline.topic for timeline in timelines),
            )
        return self._known

    def _read(self) -> dict[str, str]:
        with reading(self._engine) as connection:
            return read_marks(connection)


class _Topics(NamedTuple):
    """The topics in the registry."""

    position: int
    """Position of the log."""
    embedded: Collection[str]
    """The ids of embedded storages with topics."""
    names: frozenset[str]
    """The readable topics of all storages."""

    def lack(self, name: str) -> bool:
        """Whether a mark belongs to a deleted topic."""
        topic = name.removeprefix(topic_mark("")).removeprefix(accepted_mark(""))
        return topic != name and topic not in self.names
