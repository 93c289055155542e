"""Recovers the outcome of interrupted append attempts by scanning the topic.

Each record of such a batch says to which attempt it belongs, and which event it is. The partition is read from where
the attempt began. What is found is stored. What is not found is not stored only if nothing can come any more:

- The leader itself refuses records that bear a time older than `LATE_S` (`message.timestamp.before.max.ms` of the
  topic), and those of an attempt bear the time when it began. So neither a process that was paused nor a packet that
  was held up can add one later, as long as clocks differ by at most `SKEW_S`.
- Nothing lies behind what can be read, that the leader has but the copies have not; or what was read comes later.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from rioni.domain.errors import NotFound, Unavailable
from rioni.storage.kafka.client import END, Connection, unavailable
from rioni.storage.kafka.idempotence.idempotency_index import ATTEMPT_BYTES, Attempt, Place
from rioni.storage.kafka.topics.append_probe import AppendProbe
from rioni.storage.kafka.topics.topics import LATE_S, Topics


HEADER = "X-Rioni-Attempt"
"""Of records that must be stored once: the attempt's id, and the event's index in the batch. Never to change."""

SKEW_S = 30.0
"""How far the clocks of nodes and brokers may differ."""

SETTLED_MS = int(1_000 * (LATE_S + SKEW_S))
"""So long after it began no record of an attempt is taken any more."""

MESSAGES_MAX = 1_000
LOOK_EVERY_S = 0.1


class Recovered(NamedTuple):
    """Recovered outcome of an attempt."""

    stored: frozenset[Place]
    final: bool
    """Nothing else can come."""


class AttemptRecovery:
    """Looks for the records of attempts; blocks."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection, self._topics, self._probes = connection, topics, AppendProbe(connection)

    def look(self, attempt: Attempt, now_ms: int) -> Recovered:
        """Read what there is of an attempt.

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
        # Asked after reading, so that what came meanwhile is not overlooked.
        settled = now_ms > attempt.begun_ms + SETTLED_MS
        return Recovered(stored, final=settled and self._probes.nothing_behind(self._topics.name(attempt.topic), rest))

    def _read(self, scan: "_Scan", starts: Mapping[int, int]) -> None:
        timeout_s = self._connection.request_timeout_s
        deadline_s = time.monotonic() + timeout_s
        name = self._topics.name(scan.attempt.topic)
        with contextlib.closing(Consumer(self._connection.consumer())) as consumer:
            consumer.assign([TopicPartition(name, number, starts[number]) for number in scan.left])
            while scan.left:
                messages = [*_next(consumer), *consumer.consume(MESSAGES_MAX, 0)]
                if any(message.error() is None or message.error().code() == END for message in messages):
                    deadline_s = time.monotonic() + timeout_s
                elif time.monotonic() > deadline_s:
                    raise Unavailable("Kafka does not respond. Try again later.")
                for message in messages:
                    scan.take(message)


class _Scan:
    """What was read of the partitions of an attempt: as far as necessary, and no further."""

    def __init__(self, attempt: Attempt, ends: Mapping[int, int]) -> None:
        self.attempt, self._ends = attempt, ends
        self.left = {number: len(attempt.indexes[number]) for number in ends}
        """For each partition that is still to be read the number of events that were not found."""
        self.found: set[Place] = set()
        self.passed: set[int] = set()
        """The partitions that have come to a time in which no record of the attempt could be taken."""
        self._passed_ms = attempt.begun_ms + SETTLED_MS + int(1_000 * SKEW_S)

    def take(self, message: Message) -> None:
        number = message.partition() or 0
        if (error := message.error()) is not None:
            if error.code() == END:
                self.left.pop(number, None)
            elif not error.retriable():
                raise unavailable(error)
        elif number in self.left:
            if (index := index_of(message, self.attempt.id)) is not None:
                self.found.add((number, index))
                self.left[number] -= 1
            elif message.timestamp()[1] > self._passed_ms:
                self.passed.add(number)
            if number in self.passed or not self.left[number] or message.offset() + 1 >= self._ends[number]:
                del self.left[number]


def _next(consumer: Consumer) -> list[Message]:
    message = consumer.poll(LOOK_EVERY_S)
    return [] if message is None else [message]


def header_of(attempt_id: bytes, index: int) -> tuple[str, bytes]:
    """The header of a record."""
    return HEADER, attempt_id + index.to_bytes(4)


def index_of(message: Message, attempt_id: bytes) -> int | None:
    """Which event of an attempt a record is; None for none."""
    for name, value in message.headers() or ():
        if name == HEADER and isinstance(value, bytes) and value[:ATTEMPT_BYTES] == attempt_id:
            return int.from_bytes(value[ATTEMPT_BYTES:])
    return None
