"""Appends to Kafka what must be stored once only: batches under a name, and events with ids.

Each step can be the last one of a process, or of a connection:

1. The names are looked up. What is stored already is left out.
2. The names that are left are noted, with where the partitions end now: an attempt has begun.
3. The events are handed to Kafka; each record bears the attempt's id.
4. Kafka has acknowledged them, or refused.
5. The names are noted as stored, or forgotten.

After 1 and 5 nothing is open. After 2 to 4 the names belong to an attempt; whoever comes with one of them waits for it,
and if it does not end, looks in Kafka what has become of it.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import structlog
from confluent_kafka import KafkaError, Message

from rioni.domain.errors import KeyReused, OutcomeUnknown, PartlyStored, RioniError, TopicClosed, Unavailable
from rioni.domain.headers import Headers
from rioni.domain.ports import Appended, Claim, Clock, Offload
from rioni.domain.store_measurements import StoreMeasurements
from rioni.storage.group_commit import GroupCommit
from rioni.storage.kafka.appender import Publish, measure
from rioni.storage.kafka.client import Connection
from rioni.storage.kafka.client import Place as PartitionPlace
from rioni.storage.kafka.delivery import Batch, Delivered, Delivery, Part, RecordHeaders, refused
from rioni.storage.kafka.names import ATTEMPT_BYTES, Attempt, Known, Name, Names, Place, Raced
from rioni.storage.kafka.records import Record, headers_of
from rioni.storage.kafka.settling import SETTLED_MS, Settling, header_of
from rioni.storage.kafka.topics import Topics


WAIT_S = 3.0
"""So long one waits for an attempt of somebody else before looking for its records."""

LOOK_EVERY_S = 0.05

RETRY_AFTER_S = 1.0
"""So long Kafka's client waits before it hands over anew what was not answered, give or take a fifth. A refusal that
comes earlier is about the first time; a later one says nothing of it."""

UNSETTLED = (
    "A process has died, or lost Kafka, while it stored this batch or one with the same events. What has become of it "
    f"is known {SETTLED_MS // 1_000} seconds after that: publish again then."
)

ENDS_KEPT_S = 60.0
"""So long the end of a partition is remembered: what was written since then may have to be read."""

_log = structlog.get_logger("rioni.kafka")


class _Part(Part):
    """What is left of a partition's events, each bearing the attempt's id."""

    attempt_id = b""

    def __init__(self, events: Sequence[bytes], headers: Sequence[Headers] | None, indexes: Sequence[int]) -> None:
        super().__init__(events, headers)
        self.indexes = indexes

    def begin(self) -> None:
        super().begin()
        self._begun_s = time.monotonic()
        self.open = False
        """Whether nobody knows what has become of some of them."""
        self.stored: set[int] = set()

    def callbacks(self) -> Iterable[Delivered]:
        return [partial(self._told, index) for index in self.indexes]

    def record_headers(self, index: int) -> RecordHeaders:
        return [*headers_of(self.headers[index]), header_of(self.attempt_id, self.indexes[index])]

    def _told(self, index: int, error: KafkaError | None, message: Message) -> None:
        self._delivered(error, message)
        if error is None:
            self.stored.add(index)
        elif not refused(error) or time.monotonic() - self._begun_s > RETRY_AFTER_S / 2:
            self.open = True


class _Named(Batch):
    """A call that waits, what it is to be stored under, and what it has to wait for."""

    def __init__(
        self,
        topic: str,
        name: str,
        batches: Mapping[int, Sequence[bytes]],
        headers: Mapping[int, Sequence[Headers]],
        hashes: Mapping[int, Sequence[bytes]],
        claim: tuple[bytes, str] | None,
    ) -> None:
        self.name, self.batches, self.headers, self.hashes, self.claim = name, batches, headers, hashes, claim
        self.whole = {PartitionPlace(name, n): Part(events, headers.get(n)) for n, events in batches.items()}
        super().__init__(topic, self.whole)
        self.names = {each for hashes_there in hashes.values() for each in hashes_there}
        if claim is not None:
            self.names.add(claim[0])
        self.count = sum(len(events) for events in batches.values())
        self.appended = Appended()
        self.completes: Attempt | None = None
        self.waits_for: bytes | None = None
        self.own: list[Name] = []
        self.done: dict[int, list[int]] = {}
        self.attempt: Attempt | None = None

    def look_up(self, known: Mapping[bytes, Known], settled: Callable[[bytes], Attempt | None]) -> bool:
        """Leave out what is stored already; whether something has to be done still.

        Args:
            known: of the names those that are used.
            settled: the attempt with an id, if it was left in part.
        """
        done: dict[int, set[int]] = {}
        self.completes, self.own, self.waits_for = None, [], None
        if self.claim is not None and (found := known.get(self.claim[0])) is not None:
            if found.digest != self.claim[1]:
                self.error = KeyReused()
                return False
            if found.attempt is None:
                self.appended.left_out = self.count
                return False
            self.completes = settled(found.attempt)
            if self.completes is None:
                self.waits_for = found.attempt
                return False
            if self.completes.counts != {number: len(events) for number, events in self.batches.items()}:
                self.error = Unavailable(
                    "This batch was stored in part, and its events would go to other partitions now. Publish those "
                    "that are missing under another key."
                )
                return False
            done = {number: set(indexes) for number, indexes in self.completes.done.items()}
        elif self.claim is not None:
            self.own.append(Name(*self.claim, (-1, -1)))
        return self._leave_out(known, done)

    def _leave_out(self, known: Mapping[bytes, Known], done: dict[int, set[int]]) -> bool:
        seen: set[bytes] = set()
        for number, hashes in self.hashes.items():
            already = done.setdefault(number, set())
            for index, each in enumerate(hashes):
                if index in already:
                    continue
                if each in seen:
                    already.add(index)
                elif (found := known.get(each)) is None:
                    seen.add(each)
                    self.own.append(Name(each, None, (number, index)))
                elif found.attempt is not None:
                    self.waits_for = found.attempt
                    return False
                else:
                    already.add(index)
        self._choose(done)
        if not self.parts and self.claim is None:
            self.appended.left_out = self.count
            return False
        return True

    def _choose(self, done: Mapping[int, set[int]]) -> None:
        parts: dict[PartitionPlace, Part] = {}
        for number, events in self.batches.items():
            left = [index for index in range(len(events)) if index not in done.get(number, ())]
            if left:
                headers = self.headers.get(number)
                parts[PartitionPlace(self.name, number)] = _Part(
                    [events[index] for index in left], headers and [headers[index] for index in left], left
                )
        self.parts = parts
        self.done = {number: sorted(each) for number, each in done.items() if each}

    def begin(self, begun_ms: int, starts: Mapping[PartitionPlace, int]) -> Attempt:
        """The attempt to store what is left."""
        self.attempt = attempt = Attempt(
            id=os.urandom(ATTEMPT_BYTES),
            begun_ms=begun_ms,
            topic=self.topic,
            counts={number: len(events) for number, events in self.batches.items()},
            starts={place.partition: starts.get(place, 0) for place in self.parts},
            indexes={place.partition: list(part.indexes) for place, part in self._own_parts()},
            done=self.done,
        )
        for _, part in self._own_parts():
            part.attempt_id = attempt.id
        return attempt

    def outcome(self) -> frozenset[Place] | None:
        """What was stored; None where nobody knows it of all events."""
        if any(part.open for _, part in self._own_parts()):
            return None
        return frozenset((place.partition, index) for place, part in self._own_parts() for index in part.stored)

    def _own_parts(self) -> Iterable[tuple[PartitionPlace, _Part]]:
        return ((place, part) for place, part in self.parts.items() if isinstance(part, _Part))


class NamedAppender:
    """Appends batches that have names, in groups: two transactions and one wait for Kafka for all that wait."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        topics: Topics,
        clock: Clock,
        offload: Offload,
        publish: Publish,
        timeout_s: float,
        measurements: StoreMeasurements,
    ) -> None:
        """Connect to nothing yet; the arguments are those of `Appender`, and where names and topics are known."""
        self._names, self._topics, self._clock, self._offload = names, topics, clock, offload
        self._publish, self._timeout_s, self._measurements = publish, timeout_s, measurements
        self._delivery = Delivery(connection, timeout_s, **{"retry.backoff.ms": int(1_000 * RETRY_AFTER_S)})
        self._settling = Settling(connection, topics)
        self._ends: dict[PartitionPlace, tuple[int, float]] = {}
        self._commits = GroupCommit[_Named](self._write, offload)

    def append(
        self,
        topic: str,
        batches: Mapping[int, Sequence[bytes]],
        headers: Mapping[int, Sequence[Headers]],
        ids: Mapping[int, Sequence[str]],
        claim: Claim | None,
    ) -> Appended:
        """Append what was not stored yet; see the port `EventStore`."""
        hashes = {number: [self._names.event(each) for each in ids[number]] for number in batches if number in ids}
        hashed = None if claim is None else (self._names.batch(claim.id), claim.digest)
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            batch = _Named(topic, self._topics.name(topic), batches, headers, hashes, hashed)
            try:
                self._commits.submit(batch, max(0.0, deadline_s - time.monotonic()))
            except OutcomeUnknown as ex:
                raise PartlyStored(dict.fromkeys(batches, "timed out")) from ex
            if batch.waits_for is None:
                return batch.appended
            self._wait_for(batch.waits_for)

    def claimed(self, claim_id: str) -> str | None:
        """The digest of the batch that is stored under a name; see the port.

        Raises:
            Unavailable: it can't be told yet whether the batch was stored.
        """
        hashed = self._names.batch(claim_id)
        while True:
            known = self._offload(self._names.known, [hashed]).get(hashed)
            if known is None or known.attempt is None:
                return None if known is None else known.digest
            attempt = self._offload(self._names.attempt, known.attempt)
            if attempt is not None and attempt.settled:
                # It was stored in part; who appends it again stores the rest.
                return None
            self._wait_for(known.attempt)

    def known_ids(self, ids: Collection[str]) -> Collection[str]:
        """Those of some ids that an event is stored under; see the port.

        Raises:
            Unavailable: it can't be told yet of all of them.
        """
        hashes = {self._names.event(each): each for each in ids}
        while True:
            known = self._offload(self._names.known, list(hashes))
            pending = next((each.attempt for each in known.values() if each.attempt is not None), None)
            if pending is None:
                return [hashes[each] for each in known]
            self._wait_for(pending)

    def forget(self, before_ms: int) -> None:
        """Forget names; and settle what was left open, before compaction or retention take what it is known by."""
        now_ms = self._clock.now_ms()
        for attempt in self._names.unsettled(now_ms - SETTLED_MS):
            self._settle(attempt)
        self._names.forget(before_ms)

    def forget_topic(self, topic: str) -> None:
        """Forget where the partitions of a topic end."""
        name = self._topics.name(topic)
        self._ends = {place: end for place, end in self._ends.items() if place.topic != name}

    def close(self) -> None:
        """Refuse further batches, wait until the pending ones are written, and let go of the database."""
        self._commits.close()
        self._names.close()

    # --- attempts of others ---

    def _wait_for(self, attempt_id: bytes) -> None:
        """Wait until an attempt has come to its end, or settle it.

        Raises:
            Unavailable: it can't be settled yet.
        """
        deadline_s = time.monotonic() + WAIT_S
        while (attempt := self._offload(self._names.attempt, attempt_id)) is not None and not attempt.settled:
            if time.monotonic() >= deadline_s or self._clock.now_ms() - attempt.begun_ms > 1_000 * WAIT_S:
                if self._offload(self._settle, attempt):
                    self._measurements.settled_batches(1)
                    return
                raise Unavailable(UNSETTLED)
            threading.Event().wait(LOOK_EVERY_S)

    def _settle(self, attempt: Attempt) -> bool:
        finding = self._settling.look(attempt, self._clock.now_ms())
        if finding.final:
            self._names.settle({attempt.id: (attempt, finding.stored)})
            _log.info("a batch was settled", topic=attempt.topic, stored=len(finding.stored), of=len(attempt.whole))
        return finding.final

    # --- in the writer's thread ---

    def _write(self, group: Sequence[_Named]) -> Callable[[], None]:
        publish: list[Callable[[], None]] = []
        left, begun = list(group), list[_Named]()
        while left:
            try:
                left, begun = self._begin(left)
                if begun:
                    publish.append(self._deliver(begun))
            except Exception as ex:  # noqa: BLE001 - it is the answer to those that it has stopped, and to no others
                for batch in (*begun, *left):
                    batch.error = batch.error or ex
                break
            begun = []

        def publish_all() -> None:
            for each in publish:
                each()

        return publish_all

    def _begin(self, group: Sequence[_Named]) -> tuple[list[_Named], list[_Named]]:
        """Look names up and note those that are new.

        Returns:
            The batches that share a name with one in front of them and so come next, and those to be stored now.
        """
        while True:
            known = self._names.known(list(set(itertools.chain.from_iterable(batch.names for batch in group))))
            later: list[_Named] = []
            now: list[_Named] = []
            used: set[bytes] = set()
            for batch in group:
                if not used.isdisjoint(batch.names):
                    later.append(batch)
                elif batch.look_up(known, self._settled):
                    used |= batch.names
                    now.append(batch)
            now, begun_ms = self._startable(now), self._clock.now_ms()
            starts = {place: end for place, (end, _) in self._ends.items()}
            try:
                if now:
                    self._names.begin(
                        (batch.begin(begun_ms, starts), batch.own, batch.completes.id if batch.completes else None)
                        for batch in now
                    )
            except Raced:
                continue
            return later, now

    def _settled(self, attempt_id: bytes) -> Attempt | None:
        attempt = self._names.attempt(attempt_id)
        return attempt if attempt is not None and attempt.settled else None

    def _startable(self, group: Sequence[_Named]) -> list[_Named]:
        """The batches all of whose partitions there are; it is known then where these end, or have ended lately."""
        old_s = time.monotonic() - ENDS_KEPT_S
        for batch in group:
            if any(self._ends.get(place, (0, 0.0))[1] <= old_s for place in batch.parts):
                try:
                    bounds = self._topics.bounds(batch.topic)
                except RioniError as ex:
                    batch.error = ex
                    continue
                now_s = time.monotonic()
                for number, each in enumerate(bounds):
                    self._ends[PartitionPlace(batch.name, number)] = each.newest + 1, now_s
        return [batch for batch in group if batch.error is None]

    def _deliver(self, group: Sequence[_Named]) -> Callable[[], None]:
        now_ms = max(batch.attempt.begun_ms for batch in group if batch.attempt)
        begun_s = time.monotonic()
        self._delivery.deliver([batch for batch in group if batch.parts], now_ms)
        seconds = time.monotonic() - begun_s
        written: dict[PartitionPlace, list[Sequence[Record]]] = {}
        outcomes: dict[bytes, tuple[Attempt, frozenset[Place]]] = {}
        for batch in group:
            assert batch.attempt is not None
            stored = batch.outcome()
            if stored is not None:
                outcomes[batch.attempt.id] = batch.attempt, stored
            if isinstance(batch.error, TopicClosed):
                # What was stored is known by its names: the batch comes whole to the next topic, which gets the rest.
                batch.error = Unavailable(UNSETTLED) if stored is None else TopicClosed(batch.topic)
            for place, part in batch.parts.items():
                if part.offsets and (part.error is None or part.closed):
                    written.setdefault(place, []).append(part.records(now_ms))
                    batch.appended[place.partition] = part.offsets[0]
                    self._ends[place] = part.offsets[-1] + 1, time.monotonic()
            batch.appended.left_out = batch.count - sum(len(part.events) for part in batch.parts.values())
        try:
            self._names.settle(outcomes)
        except Unavailable:
            # The events are there, or not; who comes with one of these names again finds that out.
            _log.exception("names could not be noted as stored")

        def publish() -> None:
            self._publish(written, {batch.topic for batch in group})
            measure(self._measurements, group, seconds)

        return publish
