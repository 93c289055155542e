"""Deduplicates one batch, selects the events to append, and finds out what became of attempts that were interrupted."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from rioni.domain.errors import IdempotencyKeyReused, NotFound, Unavailable
from rioni.domain.ports.event_store import Appended
from rioni.domain.publishing.headers import Headers
from rioni.storage.kafka.client import END, KafkaConnection, TopicPartitionRef, next_message, to_unavailable
from rioni.storage.kafka.delivery import Delivered, Part, ProduceBatch, RecordHeaders, refused
from rioni.storage.kafka.idempotence.idempotency_index import (
    ATTEMPT_BYTES,
    Attempt,
    EventRef,
    IdempotencyKey,
    IndexEntry,
)
from rioni.storage.kafka.records import headers_of
from rioni.storage.kafka.topics.readiness import AppendProbe
from rioni.storage.kafka.topics.topics import LATE_S, Topics


# --- Recovers the outcome of interrupted append attempts by scanning the topic ---
#
# Each record of such a batch carries the id of its attempt, and the index of its event. The partitions are read from
# their positions at the start of the attempt. Found records are stored. Missing ones are known not to be stored only
# when no record can arrive any more:
#
# - The leader rejects records with a timestamp older than `LATE_S` (`message.timestamp.before.max.ms` of the topic),
#   and those of an attempt carry its start time. So neither a paused process nor a delayed packet can add one later, as
#   long as clocks differ by at most `SKEW_S`.
# - The leader has no records beyond the readable end that are not replicated yet; or later records were read.

HEADER = "X-Rioni-Attempt"
"""Header of records to be stored once: the attempt's id, and the event's index in the batch. Must never change."""

SKEW_S = 30.0
"""How far the clocks of nodes and brokers may differ."""

SETTLED_MS = int(1_000 * (LATE_S + SKEW_S))
"""The time after the start of an attempt from which on Kafka accepts none of its records."""

MESSAGES_MAX = 1_000
POLL_EVERY_S = 0.1


class Recovered(NamedTuple):
    """Recovered outcome of an attempt."""

    stored: frozenset[EventRef]
    final: bool
    """Whether no further record can arrive."""


class AttemptRecovery:
    """Searches topics for the records of attempts; blocks."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self._connection, self._topics, self._probe = connection, topics, AppendProbe(connection)

    def recover(self, attempt: Attempt, now_ms: int) -> Recovered:
        """Read the stored records of an attempt.

        Raises:
            Unavailable: Kafka does not answer.
        """
        try:
            bounds = dict(enumerate(self._topics.bounds(attempt.topic)))
        except NotFound:
            return Recovered(frozenset(), final=True)
        starts = {n: max(start, bounds[n].oldest) for n, start in attempt.starts.items() if n in bounds}
        ends = {n: bounds[n].newest + 1 for n in starts}
        scan = _Scan(attempt, {number: end for number, end in ends.items() if starts[number] < end})
        self._read(scan, starts)
        stored = frozenset(scan.found)
        rest = {number: end for number, end in ends.items() if number not in scan.passed}
        if stored == attempt.whole or not rest:
            return Recovered(stored, final=True)
        # Checked after reading, so that records that arrived meanwhile are not missed.
        settled = now_ms > attempt.begun_ms + SETTLED_MS
        return Recovered(stored, final=settled and self._probe.nothing_behind(self._topics.name(attempt.topic), rest))

    def _read(self, scan: "_Scan", starts: Mapping[int, int]) -> None:
        timeout_s = self._connection.request_timeout_s
        deadline_s = time.monotonic() + timeout_s
        name = self._topics.name(scan.attempt.topic)
        with contextlib.closing(Consumer(self._connection.consumer())) as consumer:
            consumer.assign([TopicPartition(name, number, starts[number]) for number in scan.remaining])
            while scan.remaining:
                messages = [*next_message(consumer, POLL_EVERY_S), *consumer.consume(MESSAGES_MAX, 0)]
                if any(message.error() is None or message.error().code() == END for message in messages):
                    deadline_s = time.monotonic() + timeout_s
                elif time.monotonic() > deadline_s:
                    raise Unavailable("Kafka does not respond. Try again later.")
                for message in messages:
                    scan.add(message)


class _Scan:
    """State of a scan through the partitions of an attempt, which reads no further than necessary."""

    def __init__(self, attempt: Attempt, ends: Mapping[int, int]) -> None:
        self.attempt, self._ends = attempt, ends
        self.remaining = {number: len(attempt.indexes[number]) for number in ends}
        """The number of events not found yet, for each partition still to be read."""
        self.found: set[EventRef] = set()
        self.passed: set[int] = set()
        """The partitions read up to a time at which no record of the attempt could be accepted."""
        self._passed_ms = attempt.begun_ms + SETTLED_MS + int(1_000 * SKEW_S)

    def add(self, message: Message) -> None:
        number = message.partition() or 0
        if (error := message.error()) is not None:
            if error.code() == END:
                self.remaining.pop(number, None)
            elif not error.retriable():
                raise to_unavailable(error)
        elif number in self.remaining:
            if (index := index_of(message, self.attempt.id)) is not None:
                self.found.add((number, index))
                self.remaining[number] -= 1
            elif message.timestamp()[1] > self._passed_ms:
                self.passed.add(number)
            if number in self.passed or not self.remaining[number] or message.offset() + 1 >= self._ends[number]:
                del self.remaining[number]


def header_of(attempt_id: bytes, index: int) -> tuple[str, bytes]:
    """Return the header of a record."""
    return HEADER, attempt_id + index.to_bytes(4)


def index_of(message: Message, attempt_id: bytes) -> int | None:
    """Return the index of a record's event in an attempt; None if the record is not part of it."""
    for name, value in message.headers() or ():
        if name == HEADER and isinstance(value, bytes) and value[:ATTEMPT_BYTES] == attempt_id:
            return int.from_bytes(value[ATTEMPT_BYTES:])
    return None


# --- Deduplicates one batch: finds duplicates, selects the events to append, and records the outcome ---

RETRY_AFTER_S = 1.0
"""How long Kafka's client waits before it resends unacknowledged messages, plus or minus a fifth. An earlier rejection
concerns the first attempt; a later one has no bearing on it."""


class _Part(Part):
    """The remaining events of a partition, each with the attempt's id."""

    attempt_id = b""

    def __init__(self, events: Sequence[bytes], headers: Sequence[Headers] | None, indexes: Sequence[int]) -> None:
        super().__init__(events, headers)
        self.indexes = indexes

    def begin(self) -> None:
        super().begin()
        self._begun_s = time.monotonic()
        self.open = False
        """Whether the outcome of some events is unknown."""
        self.stored: set[int] = set()

    def callbacks(self) -> Iterable[Delivered]:
        return [partial(self._on_delivery, index) for index in self.indexes]

    def abandon(self) -> None:
        super().abandon()
        self.open = True

    def record_headers(self, index: int) -> RecordHeaders:
        return [*headers_of(self.headers[index]), header_of(self.attempt_id, self.indexes[index])]

    def _on_delivery(self, index: int, error: KafkaError | None, message: Message) -> None:
        self._delivered(error, message)
        if error is None:
            self.stored.add(index)
        elif not refused(error) or time.monotonic() - self._begun_s > RETRY_AFTER_S / 2:
            self.open = True


class IdempotentBatch(ProduceBatch):
    """A waiting call of `append`, its idempotency keys, and the attempt that it has to wait for."""

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
        self.whole = {TopicPartitionRef(name, n): Part(events, headers.get(n)) for n, events in batches.items()}
        super().__init__(topic, self.whole)
        self.keys = {each for hashes_there in hashes.values() for each in hashes_there}
        if claim is not None:
            self.keys.add(claim[0])
        self.count = sum(len(events) for events in batches.values())
        self.appended = Appended()
        self.completes: Attempt | None = None
        self.waits_for: bytes | None = None
        self.new_keys: list[IdempotencyKey] = []
        self.done: dict[int, list[int]] = {}
        self.attempt: Attempt | None = None
        self.timed_out = False
        """Whether the caller was given an unknown outcome."""

    def look_up(self, known: Mapping[bytes, IndexEntry], settled: Callable[[bytes], Attempt | None]) -> bool:
        """Leave out events already stored; return whether anything remains to be done.

        Args:
            known: the index entries of the used keys.
            settled: returns the attempt with an id, if it was partially stored.
        """
        done: dict[int, set[int]] = {}
        self.completes, self.new_keys, self.waits_for = None, [], None
        if self.claim is not None and (found := known.get(self.claim[0])) is not None:
            if found.digest != self.claim[1]:
                self.error = IdempotencyKeyReused()
                return False
            if found.attempt is None:
                self.appended.duplicates = self.count
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
            self.new_keys.append(IdempotencyKey(*self.claim, (-1, -1)))
        return self._leave_out(known, done)

    def _leave_out(self, known: Mapping[bytes, IndexEntry], done: dict[int, set[int]]) -> bool:
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
                    self.new_keys.append(IdempotencyKey(each, None, (number, index)))
                elif found.attempt is not None:
                    self.waits_for = found.attempt
                    return False
                else:
                    already.add(index)
        self._choose(done)
        if not self.parts and self.claim is None:
            self.appended.duplicates = self.count
            return False
        return True

    def _choose(self, done: Mapping[int, set[int]]) -> None:
        parts: dict[TopicPartitionRef, Part] = {}
        for number, events in self.batches.items():
            remaining = [index for index in range(len(events)) if index not in done.get(number, ())]
            if remaining:
                headers = self.headers.get(number)
                parts[TopicPartitionRef(self.name, number)] = _Part(
                    [events[index] for index in remaining],
                    headers and [headers[index] for index in remaining],
                    remaining,
                )
        self.parts = parts
        self.done = {number: sorted(each) for number, each in done.items() if each}

    def begin(self, begun_ms: int, starts: Mapping[TopicPartitionRef, int]) -> Attempt:
        """Create the attempt to store the remaining events."""
        self.attempt = attempt = Attempt(
            id=os.urandom(ATTEMPT_BYTES),
            begun_ms=begun_ms,
            topic=self.topic,
            counts={number: len(events) for number, events in self.batches.items()},
            starts={place.partition: starts.get(place, 0) for place in self.parts},
            indexes={place.partition: list(part.indexes) for place, part in self._new_parts()},
            done=self.done,
        )
        for _, part in self._new_parts():
            part.attempt_id = attempt.id
        return attempt

    def outcome(self) -> frozenset[EventRef] | None:
        """Return the stored events; None if the outcome of some events is unknown."""
        if any(part.open for _, part in self._new_parts()):
            return None
        return frozenset((place.partition, index) for place, part in self._new_parts() for index in part.stored)

    @property
    def all_stored(self) -> bool:
        """Whether each event was acknowledged, perhaps after it was awaited too long."""
        return all(len(part.stored) == len(part.indexes) for _, part in self._new_parts())

    def _new_parts(self) -> Iterable[tuple[TopicPartitionRef, _Part]]:
        return ((place, part) for place, part in self.parts.items() if isinstance(part, _Part))
