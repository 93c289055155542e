"""Deduplicates one batch: finds duplicates, selects the events to append, and records the outcome."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, Message

from rioni.domain.errors import IdempotencyKeyReused, Unavailable
from rioni.domain.ports.event_store import Appended
from rioni.domain.publishing.headers import Headers
from rioni.storage.kafka.client import TopicPartitionRef
from rioni.storage.kafka.delivery import Delivered, Part, ProduceBatch, RecordHeaders, refused
from rioni.storage.kafka.idempotence.attempt_recovery import header_of
from rioni.storage.kafka.idempotence.idempotency_index import (
    ATTEMPT_BYTES,
    Attempt,
    EventRef,
    IdempotencyKey,
    IndexEntry,
)
from rioni.storage.kafka.records import headers_of


RETRY_AFTER_S = 1.0
"""How long Kafka's client waits before it resends unacknowledged messages, plus or minus a fifth. An earlier rejection
concerns the first attempt; a later one says nothing about it."""


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
        """Whether the caller was told that the outcome is unknown."""

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
