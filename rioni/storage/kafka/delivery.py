"""Produces batches to Kafka through idempotent producers, and reports their outcome.

librdkafka resends what was not answered under the same sequence number, which brokers store once. When a message is
lost, because of a time-out or because a broker refuses it, librdkafka numbers anew in all partitions: whatever else was
not answered by then it resends under a new number, and it may be stored twice. So:

- Messages have no time-out there. The producer that has not answered in time takes no further batches, and is discarded
  once it has none left that is waited for.
- When something is refused, the producer takes no further batches, and is discarded at once when something else in it
  is not answered within `RENUMBERED_S`, which is much longer than that takes if no connection breaks.
"""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from rioni.domain.errors import NotFound, PartiallyStored, RioniError, TooLarge, TopicClosed
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.storage.group_commit import Job
from rioni.storage.kafka.client import RECORD_BYTES_MAX, TIMED_OUT, UNKNOWN, Connection, TopicPartitionRef, unavailable
from rioni.storage.kafka.records import Record, headers_of, key_of


HEADERS_BYTES = 10_000
"""What key, owner and consumer tag of a record may take beside event and datum."""

LOOK_EVERY_S = 0.1
LOOK_AT_ALL_EVERY_S = 0.02
"""The same where several producers have batches."""

RENUMBERED_S = 1.0
"""How long something may be under way in a producer in which something else was refused."""

HEARD_S, HEARD_SHARE = 10.0, 1 / 2
"""How long it is tried to append to a topic that exists, but that the broker which the producer asks does not know; and
for which share of the time-out at most."""

# Nothing was written now: these are the leader's own words, or come before it is asked. What was handed over before
# and never answered may have been.
_REFUSALS = UNKNOWN | {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}

Delivered = Callable[[KafkaError | None, Message], None]
RecordHeaders = list[tuple[str, str | bytes | None]]

_log = structlog.get_logger("rioni.kafka")


class Part:
    """The events of a batch in one partition, and their outcome."""

    def __init__(self, events: Sequence[bytes], headers: Sequence[Headers] | None) -> None:
        if any(
            len(event) + len(each.avro or b"") > RECORD_BYTES_MAX
            for event, each in zip(events, headers or repeat(NO_HEADERS), strict=False)
        ):
            raise TooLarge(f"Kafka stores events of at most {RECORD_BYTES_MAX} bytes.")
        self.events, self.headers = events, headers or [NO_HEADERS] * len(events)
        self.unanswered = 0
        """How many events were handed over whose outcome is not known."""
        self.begin()

    def begin(self) -> None:
        """Reset the outcome of the events: they are produced, perhaps again."""
        self.offsets: list[int] = []
        self.error: KafkaError | None = None
        self.in_order = True
        """Whether it is the first ones that were written, if not all were."""

    @property
    def closed(self) -> bool:
        """Whether the leader has said that it takes no more, so that what follows `offsets` was not written."""
        return self.error is not None and self.in_order and self.error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    @property
    def refused(self) -> bool:
        """Whether some of the events were refused for good, though the partition is known."""
        return self.error is not None and self.error.code() not in UNKNOWN | TIMED_OUT

    @property
    def unknown(self) -> bool:
        """Whether nothing was written, because the partition is not known."""
        return self.error is not None and not self.offsets and self.error.code() in UNKNOWN

    def callbacks(self) -> Iterable[Delivered]:
        """Delivery callbacks, one for each event."""
        return repeat(self._delivered)

    def record_headers(self, index: int) -> RecordHeaders | None:
        """The headers of the record of an event; None for neither headers nor a key."""
        headers = self.headers[index]
        return None if headers is NO_HEADERS else headers_of(headers)

    def records(self, recorded_at_ms: int) -> list[Record]:
        """What was written: all events, or the first ones."""
        written = zip(self.offsets, self.events, self.headers, strict=False)
        return [Record(offset, recorded_at_ms, event, headers) for offset, event, headers in written]

    def abandon(self) -> None:
        """Note that the producer has not told the outcome of all events in time."""
        self.unanswered = 0
        self.error = KafkaError(KafkaError._MSG_TIMED_OUT)  # noqa: SLF001 - for everybody

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self.unanswered -= 1
        if error is not None:
            self.error = error
        else:
            self.in_order &= self.error is None
            self.offsets.append(message.offset())


class ProduceBatch(Job):
    """A call of `append` that waits."""

    def __init__(self, topic: str, parts: Mapping[TopicPartitionRef, Part]) -> None:
        self.topic, self.parts = topic, parts
        self.now_ms, self.begun_s, self.repeated = 0, 0.0, False
        self.deadline_s = math.inf
        """When it is no longer waited for, on the monotonic clock."""
        self.producer: Producer = None
        """The one that it was handed to."""
        super().__init__(sum([len(event) for part in parts.values() for event in part.events]))

    @property
    def unanswered(self) -> bool:
        """Whether the outcome of some event is not known."""
        return any(part.unanswered for part in self.parts.values())


class Delivery:
    """Producers of which one takes new batches, for one thread at a time."""

    def __init__(self, connection: Connection, timeout_s: float, **settings: object) -> None:
        """Connect to nothing yet.

        Args:
            connection: where the brokers are.
            timeout_s: how long Kafka may take.
            settings: of the producers, beside those that they have anyway.
        """
        self._timeout_s, self._request_timeout_s = timeout_s, connection.request_timeout_s
        self._settings = connection.client(
            **{
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "delivery.timeout.ms": 0,
                "message.max.bytes": RECORD_BYTES_MAX + HEADERS_BYTES,
                "queue.buffering.max.messages": 0,
                **settings,
            }
        )
        self._producer = Producer(self._settings)
        self._replaced: set[Producer] = set()
        self._renumbered: set[Producer] = set()
        """Those of them in which something was refused."""

    def deliver(self, group: Sequence[ProduceBatch], now_ms: int) -> None:
        """Append batches and note their outcomes; blocks until all are known.

        Args:
            group: the batches, in their order.
            now_ms: when they are recorded.
        """
        self.begin(group, now_ms)
        self.advance(group, group, math.inf)

    def begin(self, group: Sequence[ProduceBatch], now_ms: int) -> None:
        """Hand batches over to the producer; they are under way then."""
        self._poll(self._producer, 0)
        for batch in group:
            batch.now_ms, batch.begun_s, batch.under_way, batch.repeated = now_ms, time.monotonic(), True, False
            batch.deadline_s = batch.begun_s + self._timeout_s
            self._produce_all(batch, batch.parts)

    def advance(self, group: Sequence[ProduceBatch], awaited: Sequence[ProduceBatch], wait_s: float) -> None:
        """Wait until the outcomes of some batches are known, and note those of all that are.

        Args:
            group: all batches that are under way.
            awaited: those that are waited for.
            wait_s: how long to wait at most.
        """
        until_s = time.monotonic() + wait_s
        while any(batch.under_way for batch in awaited):
            end_s = min(until_s, *[batch.deadline_s for batch in awaited if batch.under_way])
            # PERF: mostly the first batch that is looked at is the last one, so that this is one look for each poll.
            while (left_s := end_s - time.monotonic()) > 0 and any(batch.unanswered for batch in awaited):
                self._poll_all(min(left_s, LOOK_EVERY_S))
            for batch in group:
                if batch.under_way:
                    self._settle(batch, group)
            self._discard(group)
            if time.monotonic() >= until_s:
                return

    def _settle(self, batch: ProduceBatch, group: Sequence[ProduceBatch]) -> None:
        """Note the outcome of a batch, if it is known."""
        if batch.unanswered:
            if time.monotonic() < batch.deadline_s:
                return
            self._replace(batch.producer)
            if batch.producer in self._renumbered:
                batch.producer.purge()
            for part in batch.parts.values():
                if part.unanswered:
                    part.abandon()
        unknown = {place: part for place, part in batch.parts.items() if part.unknown}
        if unknown and time.monotonic() < batch.begun_s + min(HEARD_S, HEARD_SHARE * self._timeout_s):
            # Asked before: they exist, so it is only the producer that has not heard of them.
            self._hear(batch, {place.topic for place in unknown})
            self._produce_all(batch, unknown)
            return
        batch.error, batch.under_way = _outcome(batch), False
        if any(part.refused for part in batch.parts.values()):
            self._renumber(batch, group)

    def _renumber(self, refused: ProduceBatch, group: Sequence[ProduceBatch]) -> None:
        """See to it that nothing is stored twice though a producer numbers anew."""
        producer = refused.producer
        # The same topic, if it is closed, refuses what is sent again.
        others = [
            each for each in group if each.under_way and each.producer is producer and each.topic != refused.topic
        ]
        if others:
            self._replace(producer)
            self._renumbered.add(producer)
        for batch in others:
            batch.deadline_s = min(batch.deadline_s, batch.begun_s + RENUMBERED_S)
        if any(batch.deadline_s < time.monotonic() for batch in others):
            producer.purge()

    def _hear(self, batch: ProduceBatch, names: Collection[str]) -> None:
        """Let the producer ask for topics, a little later than the last time."""
        if batch.repeated:
            self._poll_all(LOOK_EVERY_S)
        batch.repeated = True
        for name in names:
            with contextlib.suppress(KafkaException):  # the others are written
                self._producer.list_topics(name, self._request_timeout_s)

    def _produce_all(self, batch: ProduceBatch, parts: Mapping[TopicPartitionRef, Part]) -> None:
        batch.producer = self._producer
        for place, part in parts.items():
            part.begin()
            self._produce(batch, place, part)

    def _replace(self, producer: Producer) -> None:
        """Hand further batches to a new producer; what this one has it may still store, once."""
        if producer is self._producer:
            _log.warning("replacing the Kafka producer")
            self._replaced.add(producer)
            self._producer = Producer(self._settings)

    def _discard(self, group: Sequence[ProduceBatch]) -> None:
        """Let go of replaced producers that have nothing any more that is waited for."""
        if self._replaced:
            waited_for = {batch.producer for batch in group if batch.under_way}
            for producer in self._replaced - waited_for:
                producer.purge()
                self._poll(producer, 0)
            self._replaced &= waited_for
            self._renumbered &= waited_for

    def _poll_all(self, wait_s: float) -> None:
        for producer in list(self._replaced):
            self._poll(producer, 0)
        self._poll(self._producer, min(wait_s, LOOK_AT_ALL_EVERY_S) if self._replaced else wait_s)

    def _poll(self, producer: Producer, wait_s: float) -> None:
        try:
            producer.poll(wait_s)
        except KafkaException as ex:
            # It says once that it takes no more; what has become of each record it still says.
            _log.error("fatal Kafka producer error", reason=ex.args[0].str())
            self._replace(producer)

    def _produce(self, batch: ProduceBatch, place: TopicPartitionRef, part: Part) -> None:
        produce, record_headers, now_ms = batch.producer.produce, part.record_headers, batch.now_ms
        for index, (event, delivered) in enumerate(zip(part.events, part.callbacks(), strict=False)):
            headers = record_headers(index)
            try:
                if headers is None:
                    produce(place.topic, event or None, None, place.partition, delivered, timestamp=now_ms)
                else:
                    produce(
                        place.topic,
                        event or None,
                        key_of(part.headers[index]),
                        place.partition,
                        delivered,
                        timestamp=now_ms,
                        headers=headers,
                    )
            except KafkaException as ex:
                part.error = ex.args[0]
                return
            part.unanswered += 1


def refused(error: KafkaError) -> bool:
    """Whether an error says that a record was not written, unless it was handed over before without an answer."""
    return error.code() in _REFUSALS


def _outcome(batch: ProduceBatch) -> RioniError | None:
    failed = {place.partition: part.error for place, part in batch.parts.items() if part.error is not None}
    if not failed:
        return None
    if any(error.code() == KafkaError.INVALID_TIMESTAMP for error in failed.values()):
        _log.error("Kafka rejected event timestamps: the clocks of this machine and of the brokers differ too much")
    stored = {place.partition: len(part.offsets) for place, part in batch.parts.items() if part.offsets}
    if all(part.closed for part in batch.parts.values() if part.error is not None):
        return TopicClosed(batch.topic, stored)
    codes = {error.code() for error in failed.values()}
    if len(failed) == len(batch.parts) and not stored and codes <= _REFUSALS:
        if KafkaError.MSG_SIZE_TOO_LARGE in codes:
            return TopicClosed(batch.topic)
        if codes & UNKNOWN:
            return NotFound(f"topic {batch.topic} or one of its partitions does not exist")
        return unavailable(next(iter(failed.values())))
    return PartiallyStored(
        {number: "timed out" if error.code() in TIMED_OUT else "internal error" for number, error in failed.items()}
    )
