"""Appends to Kafka exactly once: batches with idempotency keys, and events with ids.

The process or its connection may fail after each step:

1. Look up the keys. Duplicates are left out.
2. Record the remaining keys with the end positions of the partitions: an attempt has begun.
3. Produce the events; each record carries the attempt's id.
4. Wait until Kafka has acknowledged or rejected them.
5. Record the keys as stored, or delete them.

After steps 1 and 5 nothing is pending. After 2 to 4 the keys belong to an attempt; a later batch with one of them waits
for it, and if the attempt does not end, searches Kafka for its outcome.
"""

import itertools
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from rioni.domain.errors import OutcomeUnknown, PartiallyStored, RioniError, TopicClosed, Unavailable
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.event_store import Appended
from rioni.domain.ports.store_measurements import StoreMeasurements
from rioni.domain.ports.thread_pool import StorePools
from rioni.domain.publishing.headers import Headers
from rioni.domain.publishing.idempotency import IdempotencyClaim
from rioni.storage.group_commit import GroupCommit
from rioni.storage.kafka.appender import Publish, Written, measure
from rioni.storage.kafka.client import Connection, TopicPartitionRef
from rioni.storage.kafka.delivery import Delivery
from rioni.storage.kafka.idempotence.attempt_recovery import SETTLED_MS, AttemptRecovery
from rioni.storage.kafka.idempotence.idempotency_index import Attempt, EventRef, IdempotencyIndex, IndexConflict
from rioni.storage.kafka.idempotence.idempotent_batch import RETRY_AFTER_S, IdempotentBatch
from rioni.storage.kafka.topics.topics import Topics


WAIT_S = 3.0
"""How long to wait for another process's attempt before searching for its records."""

POLL_EVERY_S = 0.05

TRIES_MAX = 10
"""Maximum number of other attempts to wait for, one after the other, to determine what is stored."""

UNSETTLED = (
    "An earlier attempt to store this batch, or one with the same events, was interrupted and its outcome is not "
    f"known yet. Retry in {SETTLED_MS // 1_000} seconds."
)

ENDS_KEPT_S = 60.0
"""How long end positions of partitions are cached: records written since then may have to be scanned."""

_log = structlog.get_logger("rioni.kafka")


class IdempotentAppender:
    """Appends batches with idempotency keys in groups: two transactions and one wait for Kafka per group."""

    def __init__(
        self,
        connection: Connection,
        index: IdempotencyIndex,
        topics: Topics,
        clock: Clock,
        pools: StorePools,
        publish: Publish,
        timeout_s: float,
        measurements: StoreMeasurements,
    ) -> None:
        """Connect to nothing yet; arguments as for `Appender`, plus the idempotency index and the topics."""
        self._index, self._topics, self._clock, self._pools = index, topics, clock, pools
        self._publish, self._timeout_s, self._measurements = publish, timeout_s, measurements
        self._delivery = Delivery(connection, timeout_s, **{"retry.backoff.ms": int(1_000 * RETRY_AFTER_S)})
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
            attempt = self._pools.read(self._index.attempt, known.attempt)
            if attempt is not None and attempt.settled:
                # It was stored partially; a retry stores the rest.
                return None
            self._wait_for(known.attempt)
        raise Unavailable(UNSETTLED)

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
            self._wait_for(pending)
        raise Unavailable(UNSETTLED)

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
        self._index.close()

    # --- attempts of others ---

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
                raise Unavailable(UNSETTLED)
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

    # --- in the writer's thread ---

    def _write(self, group: Sequence[IdempotentBatch]) -> Callable[[], None]:
        publish: list[Callable[[], None]] = []
        remaining, begun = list(group), list[IdempotentBatch]()
        while remaining:
            try:
                remaining, begun = self._begin(remaining)
                if begun:
                    publish.append(self._deliver(begun))
            except Exception as ex:  # noqa: BLE001 - it is the answer to those that it has stopped, and to no others
                for batch in (*begun, *remaining):
                    batch.error, batch.under_way = batch.error or ex, False
                break
            begun = []

        def publish_all() -> None:
            for each in publish:
                each()

        return publish_all

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
        for batch in group:
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

    def _deliver(self, group: Sequence[IdempotentBatch]) -> Callable[[], None]:
        now_ms = max(batch.attempt.begun_ms for batch in group if batch.attempt)
        begun_s = time.monotonic()
        self._delivery.deliver([batch for batch in group if batch.parts], now_ms)
        seconds = time.monotonic() - begun_s
        written: Written = {}
        outcomes: dict[bytes, tuple[Attempt, frozenset[EventRef]]] = {}
        for batch in group:
            assert batch.attempt is not None
            stored = batch.outcome()
            if stored is not None:
                outcomes[batch.attempt.id] = batch.attempt, stored
            if isinstance(batch.error, TopicClosed):
                # The index has what was stored: the whole batch is retried on the next topic, which gets the rest.
                batch.error = Unavailable(UNSETTLED) if stored is None else TopicClosed(batch.topic)
            for place, part in batch.parts.items():
                if part.offsets and (part.error is None or part.closed):
                    written.setdefault(place, []).append(part.records(now_ms))
                    batch.appended[place.partition] = part.offsets[0]
                    self._ends[place] = part.offsets[-1] + 1, time.monotonic()
            batch.appended.duplicates = batch.count - sum(len(part.events) for part in batch.parts.values())
        try:
            self._index.settle(outcomes)
        except Unavailable:
            # The events may be stored or not; the next use of one of these keys determines that.
            _log.exception("could not mark idempotency keys as stored")

        def publish() -> None:
            self._publish(written, {batch.topic for batch in group})
            measure(self._measurements, group, seconds)

        return publish
