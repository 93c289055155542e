"""Produces batches to Kafka through idempotent producers, and reports their outcome.

librdkafka resends unacknowledged messages under the same sequence number, which brokers store once. When a message is
lost, because of a timeout or because a broker rejects it, librdkafka renumbers all partitions: other unacknowledged
messages are resent under new numbers, and may be stored twice. So:

- Messages have no timeout in librdkafka. A producer that has not answered in time receives no further batches. Once no
  batch in it is awaited it is discarded, or handed over to the caller, which may wait longer.
- After a rejection, the producer receives no further batches, and is discarded at once if another message in it is not
  acknowledged within `RENUMBERED_S`, which is much longer than that takes unless a connection breaks.
"""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from rioni.config.logs import FailureLog
from rioni.domain.errors import NotFound, PartiallyStored, RioniError, TooLarge, TopicClosed, Unavailable
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.storage.group_commit import WriteJob
from rioni.storage.kafka.client import (
    RECORD_BYTES_MAX,
    TIMED_OUT,
    UNKNOWN,
    KafkaConnection,
    TopicPartitionRef,
    to_unavailable,
)
from rioni.storage.kafka.records import Record, headers_of, key_of


HEADERS_BYTES = 10_000
"""Maximum size of key, owner and consumer tag of a record, besides event and datum."""

LOOK_EVERY_S = 0.1
LOOK_AT_ALL_EVERY_S = 0.02
"""Polling interval while several producers have batches."""

RENUMBERED_S = 1.0
"""How long a message may stay in flight in a producer that has seen a rejection."""

HEARD_S, HEARD_SHARE = 10.0, 1 / 2
"""How long to retry appends to an existing topic that the producer's broker does not know yet, and the maximum share of
the timeout used for that."""

# Nothing was written by this attempt: the leader reports these, or they occur before it is contacted. Earlier
# unacknowledged attempts may have been written.
_REFUSALS = UNKNOWN | {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}

_REMOVED = {KafkaError._DESTROY, KafkaError._DESTROY_BROKER}  # noqa: SLF001 - for everybody
"""Error codes of records that wait for a partition which the client removes from its metadata, as when the topic
is deleted. An earlier attempt may have been written."""

Keep = Callable[[Producer, "Sequence[ProduceBatch]"], None]

Delivered = Callable[[KafkaError | None, Message], None]
RecordHeaders = list[tuple[str, str | bytes | None]]

_log = structlog.get_logger("rioni.kafka")
_failures = FailureLog(_log)
_NOT_STORED, _REPLACED = "Kafka did not store all events of a batch", "replacing the Kafka producer"
_WRONG_TIME = "Kafka rejected event timestamps"


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
        """Number of produced events without an outcome."""
        self.begin()

    def begin(self) -> None:
        """Reset the outcome of the events, before they are produced, perhaps again."""
        self.offsets: list[int] = []
        self.error: KafkaError | None = None
        self.in_order = True
        """Whether the written events are the first ones, if not all were written."""

    @property
    def closed(self) -> bool:
        """Whether the leader has reported the topic as closed, so that nothing after `offsets` was written."""
        return self.error is not None and self.in_order and self.error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    @property
    def refused(self) -> bool:
        """Whether events were rejected permanently, although the partition is known."""
        return self.error is not None and self.error.code() not in UNKNOWN | TIMED_OUT

    @property
    def unknown(self) -> bool:
        """Whether nothing was written because the partition is unknown."""
        return self.error is not None and not self.offsets and self.error.code() in UNKNOWN

    def callbacks(self) -> Iterable[Delivered]:
        """Return delivery callbacks, one for each event."""
        return repeat(self._delivered)

    def record_headers(self, index: int) -> RecordHeaders | None:
        """Return the headers of an event's record; None without headers and key."""
        headers = self.headers[index]
        return None if headers is NO_HEADERS else headers_of(headers)

    def records(self, recorded_at_ms: int) -> list[Record]:
        """Return the written records: all events, or the first ones."""
        written = zip(self.offsets, self.events, self.headers, strict=False)
        return [Record(offset, recorded_at_ms, event, headers) for offset, event, headers in written]

    def abandon(self) -> None:
        """Mark the part as timed out: the producer has not reported all outcomes in time."""
        self.unanswered = 0
        self.error = KafkaError(KafkaError._MSG_TIMED_OUT)  # noqa: SLF001 - for everybody

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self.unanswered -= 1
        if error is not None:
            self.error = error
        else:
            self.in_order &= self.error is None
            self.offsets.append(message.offset())


class ProduceBatch(WriteJob):
    """A waiting call of `append`."""

    def __init__(self, topic: str, parts: Mapping[TopicPartitionRef, Part]) -> None:
        self.topic, self.parts = topic, parts
        self.now_ms, self.begun_s, self.repeated = 0, 0.0, False
        self.deadline_s = math.inf
        """When waiting ends, on the monotonic clock."""
        self.producer: Producer = None
        """The producer that has the batch."""
        super().__init__(sum([len(event) for part in parts.values() for event in part.events]))

    @property
    def unanswered(self) -> bool:
        """Whether the outcome of some event is unknown."""
        return any(part.unanswered for part in self.parts.values())


class Delivery:
    """A set of idempotent producers, one of which receives new batches; not thread-safe."""

    def __init__(
        self, connection: KafkaConnection, timeout_s: float, keep: "Keep | None" = None, **settings: object
    ) -> None:
        """Create the producer, which connects when first used.

        Args:
            connection: how to reach the brokers.
            timeout_s: the timeout of a batch.
            keep: receives the producers that have not answered in time, with the batches that were awaited too long.
            settings: the settings of the producers, in addition to the defaults.
        """
        self._timeout_s, self._request_timeout_s, self._keep = timeout_s, connection.request_timeout_s, keep
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
        """Replaced producers that have seen a rejection."""
        self._unanswered: dict[Producer, list[ProduceBatch]] = {}
        """The batches of replaced producers that were awaited too long."""

    def begin(self, group: Sequence[ProduceBatch], now_ms: int) -> None:
        """Produce batches with the current producer; they are under way then.

        Args:
            group: the batches, in their order.
            now_ms: when they are recorded.
        """
        self._poll(self._producer, 0)
        for batch in group:
            batch.now_ms, batch.begun_s, batch.under_way, batch.repeated = now_ms, time.monotonic(), True, False
            batch.deadline_s = batch.begun_s + self._timeout_s
            self._produce_all(batch, batch.parts)

    def advance(self, group: Sequence[ProduceBatch], awaited: Sequence[ProduceBatch], wait_s: float) -> None:
        """Wait until the outcomes of the awaited batches are known, and set those of all known ones.

        Args:
            group: all batches under way.
            awaited: the batches to wait for.
            wait_s: timeout.
        """
        until_s = time.monotonic() + wait_s
        while any(batch.under_way for batch in awaited):
            end_s = min(until_s, *[batch.deadline_s for batch in awaited if batch.under_way])
            # PERF: usually the first unanswered batch found ends the check, so that each poll checks one batch.
            while (left_s := end_s - time.monotonic()) > 0 and any(batch.unanswered for batch in awaited):
                self._poll_all(min(left_s, LOOK_EVERY_S))
            for batch in group:
                if batch.under_way:
                    self._settle(batch, group)
            self._discard(group)
            if time.monotonic() >= until_s:
                return

    def _settle(self, batch: ProduceBatch, group: Sequence[ProduceBatch]) -> None:
        """Set the outcome of a batch, if it is known."""
        if batch.unanswered:
            if time.monotonic() < batch.deadline_s:
                return
            self._replace(batch.producer, "no answer in time")
            if batch.producer in self._renumbered:
                batch.producer.purge()
            self._unanswered.setdefault(batch.producer, []).append(batch)
            for part in batch.parts.values():
                if part.unanswered:
                    part.abandon()
        for place, part in batch.parts.items():
            if part.error is not None and part.error.code() in _REMOVED and not self._exists(place.topic):
                part.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        unknown = {place: part for place, part in batch.parts.items() if part.unknown}
        if unknown and time.monotonic() < batch.begun_s + min(HEARD_S, HEARD_SHARE * self._timeout_s):
            # Checked before: the topics exist, only the producer's metadata is outdated.
            self._hear(batch, {place.topic for place in unknown})
            self._produce_all(batch, unknown)
            return
        batch.error, batch.under_way = _outcome(batch), False
        if any(part.refused for part in batch.parts.values()):
            self._renumber(batch, group)

    def _renumber(self, refused: ProduceBatch, group: Sequence[ProduceBatch]) -> None:
        """Prevent duplicates after a rejection makes a producer renumber its messages."""
        producer = refused.producer
        # If the same topic is closed, it rejects resent messages.
        others = [
            each for each in group if each.under_way and each.producer is producer and each.topic != refused.topic
        ]
        if others:
            self._replace(producer, "a record was refused, and those that follow it would be stored twice")
            self._renumbered.add(producer)
        for batch in others:
            batch.deadline_s = min(batch.deadline_s, batch.begun_s + RENUMBERED_S)
        if any(batch.deadline_s < time.monotonic() for batch in others):
            producer.purge()

    def _hear(self, batch: ProduceBatch, names: Collection[str]) -> None:
        """Refresh the producer's metadata of topics, with a delay after the first time."""
        if batch.repeated:
            self._poll_all(LOOK_EVERY_S)
        batch.repeated = True
        for name in names:
            with contextlib.suppress(KafkaException):  # the others are written
                self._producer.list_topics(name, self._request_timeout_s)

    def _exists(self, name: str) -> bool:
        """Whether brokers know a topic; also True if none answers."""
        try:
            return self._producer.list_topics(name, self._request_timeout_s).topics[name].error is None
        except KafkaException:
            return True

    def _produce_all(self, batch: ProduceBatch, parts: Mapping[TopicPartitionRef, Part]) -> None:
        batch.producer = self._producer
        for place, part in parts.items():
            part.begin()
            self._produce(batch, place, part)

    def _replace(self, producer: Producer, reason: str) -> None:
        """Use a new producer for further batches; pending messages of the old one may still be stored, once."""
        if producer is self._producer:
            _failures.failed(_REPLACED, Unavailable(f"Kafka: {reason}"))
            self._replaced.add(producer)
            self._producer = Producer(self._settings)

    def _discard(self, group: Sequence[ProduceBatch]) -> None:
        """Discard or hand over replaced producers without awaited batches."""
        if self._replaced:
            waited_for = {batch.producer for batch in group if batch.under_way}
            for producer in self._replaced - waited_for:
                batches = self._unanswered.pop(producer, None)
                if self._keep is not None and batches and producer not in self._renumbered:
                    self._keep(producer, batches)
                    continue
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
            # It reports once that it accepts no more; outcomes of pending records are still delivered.
            self._replace(producer, f"a fatal error ({ex.args[0].str()})")

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


class Unanswered:
    """A producer without new batches, whose answers are still of use."""

    def __init__(self, producer: Producer, batches: Sequence[ProduceBatch], until_s: float) -> None:
        self._producer, self.batches, self.until_s = producer, batches, until_s

    def poll(self) -> bool:
        """Take answers; returns whether there will be no more."""
        try:
            self._producer.poll(0)
            over = not len(self._producer) or time.monotonic() >= self.until_s
        except KafkaException:
            over = True
        # After a rejection, the producer would send the others anew, which might store them twice.
        if over or any(part.refused for batch in self.batches for part in batch.parts.values()):
            self._producer.purge()
            self._producer.poll(0)
            return True
        return False


def refused(error: KafkaError) -> bool:
    """Whether an error means that a record was not written, unless an earlier attempt was unacknowledged."""
    return error.code() in _REFUSALS


def _outcome(batch: ProduceBatch) -> RioniError | None:
    failed = {place.partition: part.error for place, part in batch.parts.items() if part.error is not None}
    if not failed:
        for message in (_NOT_STORED, _REPLACED, _WRONG_TIME):
            _failures.succeeded(message)
        return None
    if any(error.code() == KafkaError.INVALID_TIMESTAMP for error in failed.values()):
        _failures.failed(_WRONG_TIME, Unavailable("The clocks of this machine and of the brokers differ too much."))
    stored = {place.partition: len(part.offsets) for place, part in batch.parts.items() if part.offsets}
    if all(part.closed for part in batch.parts.values() if part.error is not None):
        return TopicClosed(batch.topic, stored)
    codes = {error.code() for error in failed.values()}
    if len(failed) == len(batch.parts) and not stored and codes <= _REFUSALS:
        if KafkaError.MSG_SIZE_TOO_LARGE in codes:
            return TopicClosed(batch.topic)
        if codes & UNKNOWN:
            return NotFound(f"topic {batch.topic} or one of its partitions does not exist")
        return to_unavailable(next(iter(failed.values())))
    errors = {number: error.str() for number, error in failed.items()}
    _failures.failed(
        _NOT_STORED, to_unavailable(next(iter(failed.values()))), topic=batch.topic, errors=errors, written=stored
    )
    return PartiallyStored(
        {number: "timed out" if error.code() in TIMED_OUT else "internal error" for number, error in failed.items()}
    )
