"""Appends batches to Kafka in groups: all pending batches are produced and awaited together."""

import time
from collections.abc import Callable, Mapping, Sequence

from rioni.domain.errors import OutcomeUnknown, PartiallyStored
from rioni.domain.ports.event_store import StoreMeasurements
from rioni.domain.ports.host import Clock, ThreadPool
from rioni.domain.publishing.headers import Headers
from rioni.storage.clock import not_before
from rioni.storage.group_commit import GroupCommit
from rioni.storage.kafka.client import KafkaConnection, TopicPartitionRef
from rioni.storage.kafka.delivery import Delivery, Part, ProduceBatch
from rioni.storage.kafka.records import Record


Written = dict[TopicPartitionRef, list[Sequence[Record]]]
"""The records that are now durable, by partition and run."""

Publish = Callable[[Mapping[TopicPartitionRef, Sequence[Sequence[Record]]], set[str]], None]
"""Receives the durable records by partition and run, and the topics that have grown."""


PATIENCE_S = 0.25
"""How long a group of batches is awaited before the next one is produced alongside its remainder."""

LOOK_EVERY_S = 0.02
"""Polling interval while batches are pending and no new ones have arrived."""


class KafkaAppender:
    """Appends batches without loss, duplicates or reordering."""

    def __init__(
        self,
        connection: KafkaConnection,
        clock: Clock,
        pool: ThreadPool,
        publish: Publish,
        timeout_s: float,
        measurements: StoreMeasurements,
    ) -> None:
        """Create the appender without connecting.

        Args:
            connection: how to reach the brokers.
            clock: supplies the times when events are recorded.
            pool: the pool that waits for Kafka.
            publish: receives the written events, in the writer's thread, outside the pool.
            timeout_s: how long an append waits for Kafka.
            measurements: records the duration of appends, and failures.
        """
        self._clock, self._publish, self._timeout_s = clock, publish, timeout_s
        self._measurements = measurements
        self._delivery = Delivery(connection, timeout_s)
        self._recorded_at_ms = 0
        self._commits = GroupCommit[ProduceBatch](self._write, pool)

    def append(
        self,
        topic: str,
        batches: Mapping[TopicPartitionRef, Sequence[bytes]],
        headers: Mapping[TopicPartitionRef, Sequence[Headers]],
    ) -> Mapping[TopicPartitionRef, int]:
        """Append events durably and return their first offset in each partition; see the port `EventStore`.

        Args:
            topic: the broker's name for it, without Kafka's prefix.
            batches: for each partition the events' JSON.
            headers: stored with them, for none, some or all of the partitions.
        """
        batch = ProduceBatch(topic, {place: Part(events, headers.get(place)) for place, events in batches.items()})
        try:
            self._commits.submit(batch, self._timeout_s)
        except OutcomeUnknown as ex:
            raise PartiallyStored({place.partition: "timed out" for place in batches}) from ex
        return {place: part.offsets[0] for place, part in batch.parts.items()}

    def close(self) -> None:
        """Reject further batches and wait until the pending ones are written."""
        self._commits.close()

    def _write(self, group: Sequence[ProduceBatch]) -> Callable[[], None]:
        new = [batch for batch in group if not batch.under_way]
        slow = {place for batch in group if batch.under_way for place in batch.parts}
        recorded_at_ms = max(self._recorded_at_ms, *[batch.now_ms for batch in group])
        now_ms = not_before(recorded_at_ms, self._clock.now_ms())
        self._delivery.begin(new, now_ms)
        # Batches for an unresponsive partition do not delay others.
        awaited = [batch for batch in new if slow.isdisjoint(batch.parts)]
        self._delivery.advance(group, awaited or group, PATIENCE_S if awaited else LOOK_EVERY_S)
        done = [batch for batch in group if not batch.under_way]
        seconds = time.monotonic() - min([batch.begun_s for batch in done], default=0.0)
        written: Written = {}
        for batch in done:
            for place, part in batch.parts.items():
                if part.error is None or (part.closed and part.offsets):
                    written.setdefault(place, []).append(part.records(batch.now_ms))
        if written:
            self._recorded_at_ms = now_ms

        def publish() -> None:
            self._publish(written, {batch.topic for batch in done})
            if done:
                measure(self._measurements, done, seconds)

        return publish


def measure(measurements: StoreMeasurements, group: Sequence[ProduceBatch], seconds: float) -> None:
    """Record the measurements of a group of batches."""
    measurements.append_seconds(seconds)
    if failed := sum(batch.error is not None for batch in group):
        measurements.failed_batches(failed)
