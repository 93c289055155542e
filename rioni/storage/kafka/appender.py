"""Appends batches to Kafka in groups: all that wait are produced together, and waited for together."""

import time
from collections.abc import Callable, Mapping, Sequence

from rioni.domain.errors import OutcomeUnknown, PartlyStored
from rioni.domain.headers import Headers
from rioni.domain.ports import Clock, Offload
from rioni.domain.store_measurements import StoreMeasurements
from rioni.storage.group_commit import GroupCommit
from rioni.storage.kafka.client import Connection, Place
from rioni.storage.kafka.delivery import Batch, Delivery, Part
from rioni.storage.kafka.records import Record


Publish = Callable[[Mapping[Place, Sequence[Sequence[Record]]], set[str]], None]
"""Told what is durable now, run by run, and of the topics that have grown."""


class Appender:
    """Appends batches so that nothing is lost, stored twice or put out of order."""

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        offload: Offload,
        publish: Publish,
        timeout_s: float,
        measurements: StoreMeasurements,
    ) -> None:
        """Connect to nothing yet.

        Args:
            connection: where the brokers are.
            clock: says when events are recorded.
            offload: where Kafka is waited for.
            publish: told, on this side of the offload, what was written.
            timeout_s: how long an append waits for Kafka.
            measurements: told how long that was.
        """
        self._clock, self._publish, self._timeout_s = clock, publish, timeout_s
        self._measurements = measurements
        self._delivery = Delivery(connection, timeout_s)
        self._recorded_at_ms = 0
        self._commits = GroupCommit[Batch](self._write, offload)

    def append(
        self, topic: str, batches: Mapping[Place, Sequence[bytes]], headers: Mapping[Place, Sequence[Headers]]
    ) -> Mapping[Place, int]:
        """Append events durably and return the offsets of the first ones; see the port `EventStore`.

        Args:
            topic: by the name that the broker knows it by.
            batches: for each partition the events' JSON.
            headers: what is stored beside them, for none, some or all of the partitions.
        """
        batch = Batch(topic, {place: Part(events, headers.get(place)) for place, events in batches.items()})
        try:
            self._commits.submit(batch, self._timeout_s)
        except OutcomeUnknown as ex:
            raise PartlyStored({place.partition: "timed out" for place in batches}) from ex
        return {place: part.offsets[0] for place, part in batch.parts.items()}

    def close(self) -> None:
        """Refuse further batches and wait until the pending ones are written."""
        self._commits.close()

    def _write(self, group: Sequence[Batch]) -> Callable[[], None]:
        # Never before what this process has recorded: the order of times is searched in.
        now_ms = max(self._clock.now_ms(), self._recorded_at_ms)
        begun_s = time.monotonic()
        self._delivery.deliver(group, now_ms)
        seconds = time.monotonic() - begun_s
        written: dict[Place, list[Sequence[Record]]] = {}
        for batch in group:
            for place, part in batch.parts.items():
                if part.error is None or (part.closed and part.offsets):
                    written.setdefault(place, []).append(part.records(now_ms))
        if written:
            self._recorded_at_ms = now_ms

        def publish() -> None:
            self._publish(written, {batch.topic for batch in group})
            measure(self._measurements, group, seconds)

        return publish


def measure(measurements: StoreMeasurements, group: Sequence[Batch], seconds: float) -> None:
    """Tell of a group of batches."""
    measurements.append_seconds(seconds)
    if failed := sum(batch.error is not None for batch in group):
        measurements.failed_batches(failed)
