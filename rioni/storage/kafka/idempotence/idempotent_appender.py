"""Appends to Kafka exactly once: batches with idempotency keys, and events with ids.

The process or its connection may fail after each step:

1. Look up the keys. Duplicates are left out.
2. Record the remaining keys with the end positions of the partitions: an attempt has begun.
3. Produce the events; each record carries the attempt's id.
4. Wait until Kafka has acknowledged or rejected them.
5. Record the keys as stored, or delete them.

After steps 1 and 5 nothing is pending. After 2 to 4 the keys belong to an attempt; a later batch with one of them waits
for it, and if the attempt does not end, searches Kafka for its outcome.

An attempt that Kafka did not answer in time goes on: its producer is kept, so that the outcome is known as soon as
Kafka answers, while it accepts records of that age. Until then no attempt begins in the partitions concerned.
"""

import _thread  # threads: an event that is never set, instead of a sleep
import itertools
import threading  # threads: an event that is never set, instead of a sleep
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import structlog
from confluent_kafka import Producer

from rioni.config.logs import FailureLog
from rioni.domain.errors import (
    OutcomeNotKnownYet,
    OutcomeUnknown,
    Overloaded,
    PartiallyStored,
    RioniError,
    TopicClosed,
    Unavailable,
)
from rioni.domain.ports.event_store import Appended, StoreMeasurements
from rioni.domain.ports.host import Clock, StorePools
from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.storage.group_commit import GroupCommit
from rioni.storage.kafka.appender import LOOK_EVERY_S, PATIENCE_S, Publish, Written, measure
from rioni.storage.kafka.client import KafkaConnection, TopicPartitionRef
from rioni.storage.kafka.delivery import Delivery, ProduceBatch, Unanswered
from rioni.storage.kafka.idempotence.idempotency_index import (
    Attempt,
    EventRef,
    IdempotencyIndex,
    IndexConflict,
)
from rioni.storage.kafka.idempotence.idempotent_batch import RETRY_AFTER_S, SETTLED_MS, AttemptRecovery, IdempotentBatch
from rioni.storage.kafka.topics.topics import Topics


WAIT_S = 3.0
"""How long to wait for another process's attempt before searching for its records."""

POLL_EVERY_S = 0.05

TRIES_MAX = 10
"""Maximum number of other attempts to wait for, in turn, to determine the stored events."""

UNSETTLED = (
    "An earlier attempt to store this batch, or one with the same events, was interrupted and its outcome is not "
    "known yet. Retry: it is looked up each time, and is known once Kafka answers, "
    f"{SETTLED_MS // 1_000} seconds after that attempt at the latest."
)

SLOW_S = 3.0
"""No attempt begins in a partition that has not answered for this long, nor after an attempt whose caller was given an
unknown outcome: that of the next one would be unknown, too."""

KEPT_MAX = 4
"""The maximum number of producers that wait longer for an answer of Kafka, each with the batches of at most two
groups."""

ENDS_KEPT_S = 60.0
"""How long end positions of partitions are cached: records written since then may have to be scanned."""

_log = structlog.get_logger("rioni.kafka")
_failures = FailureLog(_log)

_NOT_MARKED = "could not mark idempotency keys as stored"


class IdempotentAppender:
    """Appends batches with idempotency keys in groups: two transactions and one wait for Kafka per group."""

    def __init__(
        self,
        connection: KafkaConnection,
        index: IdempotencyIndex,
        topics: Topics,
        clock: Clock,
        pools: StorePools,
        publish: Publish,
        timeout_s: float,
        measurements: StoreMeasurements,
    ) -> None:
        """Connect to nothing yet; arguments as for `KafkaAppender`, plus the idempotency index and the topics."""
        self._index, self._topics, self._clock, self._pools = index, topics, clock, pools
        self._publish, self._timeout_s, self._measurements = publish, timeout_s, measurements
        self._delivery = Delivery(connection, timeout_s, self._keep, **{"retry.backoff.ms": int(1_000 * RETRY_AFTER_S)})
        self._under_way: list[IdempotentBatch] = []
        self._handed_over: list[Unanswered] = []
        self._kept: list[Unanswered] = []
        self._recovery = AttemptRecovery(connection, topics)
        self._ends: dict[TopicPartitionRef, tuple[int, float]] = {}
        self._commits = GroupCommit[IdempotentBatch](self._write, pools.append)

    def append(
        self,
        topic: str,
        batches: Mapping[int, Sequence[bytes]],
        headers: Mapping[int, Sequence[Headers]],
        ids: Mapping[int, Sequence[str]],
        claim: IdempotencyClaim | None,
    ) -> Appended:
        """Append the events not stored yet; see the port `EventStore`."""
        hashes = {number: [self._index.event(each) for each in ids[number]] for number in batches if number in ids}
        hashed = None if claim is None else (self._index.batch(claim.id), claim.digest)
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            batch = IdempotentBatch(topic, self._topics.name(topic), batches, headers, hashes, hashed)
            try:
                self._commits.submit(batch, max(0.0, deadline_s - time.monotonic()))
            except OutcomeUnknown as ex:
                batch.timed_out = True
                raise PartiallyStored(dict.fromkeys(batches, "timed out")) from ex
            if batch.waits_for is None:
                return batch.appended
            self._wait_for(batch.waits_for)

    def claimed(self, claim_id: str) -> str | None:
        """Return the digest of the batch stored under an idempotency key; see the port.

        Raises:
            Unavailable: the outcome of an attempt to store the batch is unknown.
        """
        hashed = self._index.batch(claim_id)
        for _ in range(TRIES_MAX):
            known = self._pools.read(self._index.known, [hashed]).get(hashed)
            if known is None or known.attempt is None:
                return None if known is None else known.digest
            if self._pools.read(self._settled, known.attempt) is not None:
                # It was stored partially; a retry stores the rest.
                return None
            self._wait_for(known.attempt)
        raise OutcomeNotKnownYet(UNSETTLED)

    def existing_ids(self, ids: Collection[str]) -> Collection[str]:
        """Return the ids under which an event is stored; see the port.

        Raises:
            Unavailable: the outcome of an attempt to store one of them is unknown.
        """
        hashes = {self._index.event(each): each for each in ids}
        for _ in range(TRIES_MAX):
            known = self._pools.read(self._index.known, list(hashes))
            pending = next((each.attempt for each in known.values() if each.attempt is not None), None)
            if pending is None:
                return [hashes[each] for each in known]
            # Also after an attempt that ended meanwhile: only then its events that are stored have none.
            self._wait_for(pending)
        raise OutcomeNotKnownYet(UNSETTLED)

    def delete_before(self, before_ms: int) -> None:
        """Delete old keys, after recovering unfinished attempts while their records still exist in the topic."""
        now_ms = self._clock.now_ms()
        for attempt in self._index.unfinished(now_ms - SETTLED_MS):
            self._settle(attempt)
        self._index.delete_before(before_ms)

    def drop_topic(self, topic: str) -> None:
        """Drop the cached end positions of a topic's partitions."""
        name = self._topics.name(topic)
        self._ends = {place: end for place, end in self._ends.items() if place.topic != name}

    def close(self) -> None:
        """Reject further batches, wait until the pending ones are written, and close the database."""
        self._commits.close()
        for unanswered in self._kept:
            unanswered.until_s = 0.0
        self._index.close()

    # --- Attempts of others ---

    def _wait_for(self, attempt_id: bytes) -> None:
        """Wait until an attempt has ended, or recover its outcome.

        Raises:
            Unavailable: its outcome can't be determined yet.
        """
        deadline_s = time.monotonic() + WAIT_S
        while (attempt := self._pools.read(self._index.attempt, attempt_id)) is not None and not attempt.settled:
            if time.monotonic() >= deadline_s or self._clock.now_ms() - attempt.begun_ms > 1_000 * WAIT_S:
                if self._pools.read(self._settle, attempt):
                    self._measurements.recovered_batches(1)
                    return
                raise OutcomeNotKnownYet(UNSETTLED)
            threading.Event().wait(POLL_EVERY_S)

    def _settle(self, attempt: Attempt) -> bool:
        recovered = self._recovery.recover(attempt, self._clock.now_ms())
        if recovered.final:
            self._index.settle({attempt.id: (attempt, recovered.stored)})
            _log.info(
                "recovered the outcome of an interrupted batch",
                topic=attempt.topic,
                stored=len(recovered.stored),
                of=len(attempt.whole),
            )
        return recovered.final

    # --- Work in the writer's thread ---

    def _write(self, group: Sequence[IdempotentBatch]) -> Callable[[], None]:
        self._under_way = [batch for batch in group if batch.under_way]
        slow = {place for batch in self._under_way for place in batch.parts}
        remaining = [batch for batch in group if not batch.under_way]
        ends: list[Callable[[], None]] = []
        if not remaining:
            self._delivery.advance(self._under_way, self._under_way, LOOK_EVERY_S)
        while remaining:
            begun: list[IdempotentBatch] = []
            try:
                remaining, begun = self._begin(remaining)
                produced = [batch for batch in begun if batch.parts]
                begun_ms = max((batch.attempt.begun_ms for batch in begun if batch.attempt), default=0)
                self._delivery.begin(produced, begun_ms)
            except Exception as ex:  # noqa: BLE001 - it is the answer to those that it has stopped, and to no others
                for batch in (*begun, *remaining):
                    batch.error, batch.under_way = batch.error or ex, False
                break
            self._under_way += produced
            # Batches for an unresponsive partition do not delay others.
            awaited = [batch for batch in produced if slow.isdisjoint(batch.parts)]
            self._delivery.advance(self._under_way, awaited or self._under_way, PATIENCE_S if awaited else LOOK_EVERY_S)
            ends.append(self._end([batch for batch in begun if not batch.parts]))
        ends.append(self._end([]))

        def end_all() -> None:
            for end in ends:
                end()

        return end_all

    def _begin(self, group: Sequence[IdempotentBatch]) -> tuple[list[IdempotentBatch], list[IdempotentBatch]]:
        """Look up keys and record the new ones.

        Returns:
            The batches that share a key with an earlier one and so come next, and those to be stored now.
        """
        while True:
            known = self._index.known(list(set(itertools.chain.from_iterable(batch.keys for batch in group))))
            later: list[IdempotentBatch] = []
            now: list[IdempotentBatch] = []
            used: set[bytes] = set()
            for batch in group:
                if not used.isdisjoint(batch.keys):
                    later.append(batch)
                elif batch.look_up(known, self._settled):
                    used |= batch.keys
                    now.append(batch)
            now, begun_ms = self._startable(now), self._clock.now_ms()
            starts = {place: end for place, (end, _) in self._ends.items()}
            try:
                if now:
                    self._index.begin(
                        (batch.begin(begun_ms, starts), batch.new_keys, batch.completes.id if batch.completes else None)
                        for batch in now
                    )
            except IndexConflict:
                continue
            return later, now

    def _settled(self, attempt_id: bytes) -> Attempt | None:
        attempt = self._index.attempt(attempt_id)
        return attempt if attempt is not None and attempt.settled else None

    def _startable(self, group: Sequence[IdempotentBatch]) -> list[IdempotentBatch]:
        """Return the batches whose partitions all exist, with their current or recent end positions cached."""
        old_s = time.monotonic() - ENDS_KEPT_S
        self._ends = {place: end for place, end in self._ends.items() if end[1] > old_s}
        failed: dict[str, RioniError] = {}
        unanswered = {place for batch in self._unanswered(old_s=time.monotonic() - SLOW_S) for place in batch.parts}
        for batch in group:
            if place := next((place for place in batch.parts if place in unanswered), None):
                batch.error = Overloaded(
                    f"Kafka does not answer for partition {place.partition} of topic {batch.topic}; nothing of this "
                    "batch was stored. Try again later.",
                    retry_after_s=1,
                )
                continue
            if all(place in self._ends for place in batch.parts):
                continue
            # Kafka is queried once per topic, and no more after it fails to answer: all other batches wait meanwhile.
            error = next((ex for ex in failed.values() if isinstance(ex, Unavailable)), failed.get(batch.topic))
            if error is None:
                try:
                    bounds = self._topics.bounds(batch.topic)
                except RioniError as ex:
                    error = failed[batch.topic] = ex
                else:
                    now_s = time.monotonic()
                    for number, each in enumerate(bounds):
                        self._ends[TopicPartitionRef(batch.name, number)] = each.newest + 1, now_s
            batch.error = error
        return [batch for batch in group if batch.error is None]

    def _end(self, group: Sequence[IdempotentBatch]) -> Callable[[], None]:
        """Record the outcomes of batches, also of those under way; returns the function to call outside the pool."""
        group = [*group, *(batch for batch in self._under_way if not batch.under_way)]
        self._under_way = [batch for batch in self._under_way if batch.under_way]
        written: Written = {}
        outcomes: dict[bytes, tuple[Attempt, frozenset[EventRef]]] = {}
        for batch in group:
            assert batch.attempt is not None
            stored = batch.outcome()
            if stored is not None:
                outcomes[batch.attempt.id] = batch.attempt, stored
            if isinstance(batch.error, TopicClosed):
                # The index has what was stored: the whole batch is retried on the next topic, which gets the rest.
                batch.error = OutcomeNotKnownYet(UNSETTLED) if stored is None else TopicClosed(batch.topic)
            for place, part in batch.parts.items():
                if part.offsets and (part.error is None or part.closed):
                    written.setdefault(place, []).append(part.records(batch.now_ms))
                    batch.appended[place.partition] = part.offsets[0]
                    self._ends[place] = part.offsets[-1] + 1, time.monotonic()
            batch.appended.duplicates = batch.count - sum(len(part.events) for part in batch.parts.values())
        self._record_outcomes(outcomes)
        seconds = time.monotonic() - min([batch.begun_s for batch in group if batch.parts], default=time.monotonic())

        def publish() -> None:
            if group:
                self._publish(written, {batch.topic for batch in group})
                measure(self._measurements, group, seconds)
            while self._handed_over:
                _thread.start_new_thread(self._wait_longer, (self._handed_over.pop(),))

        return publish

    def _record_outcomes(self, outcomes: Mapping[bytes, tuple[Attempt, frozenset[EventRef]]]) -> None:
        try:
            self._index.settle(outcomes)
        except Unavailable as ex:
            # The events may be stored or not; the next use of one of these keys determines that.
            _failures.failed(_NOT_MARKED, ex)
        else:
            _failures.succeeded(_NOT_MARKED)

    # --- Attempts that Kafka did not answer in time ---

    def _unanswered(self, old_s: float) -> Iterator[ProduceBatch]:
        """The batches that Kafka has not answered since this time, or in that of their callers."""
        for batch in self._under_way:
            if batch.under_way and (batch.begun_s < old_s or batch.timed_out):
                yield batch
        for kept in [*self._kept]:
            yield from kept.batches

    def _keep(self, producer: Producer, batches: Sequence[ProduceBatch]) -> None:
        begun_s = min(batch.begun_s for batch in batches)
        unanswered = Unanswered(producer, batches, begun_s + SETTLED_MS / 1_000)
        for oldest in self._kept[: 1 - KEPT_MAX]:
            oldest.until_s = 0.0
        self._kept.append(unanswered)
        self._handed_over.append(unanswered)

    def _wait_longer(self, unanswered: Unanswered) -> None:
        """Wait for the answers to batches, and record them as stored; not in the pool, as no step of it blocks."""
        try:
            while not unanswered.poll():
                threading.Event().wait(POLL_EVERY_S)
            stored = [
                batch.attempt
                for batch in unanswered.batches
                if isinstance(batch, IdempotentBatch) and batch.attempt is not None and batch.all_stored
            ]
            if stored:
                self._pools.read(self._index.settle, {each.id: (each, each.whole) for each in stored})
                _failures.succeeded(_NOT_MARKED)
                _log.info("Kafka answered late: the batches are stored", batches=len(stored))
        except RioniError as ex:
            # The next use of one of their keys determines the outcome.
            _failures.failed(_NOT_MARKED, ex)
        finally:
            self._kept.remove(unanswered)
