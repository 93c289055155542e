"""Recovers the outcome of interrupted append attempts by scanning the topic.

Each record of such a batch carries the id of its attempt, and the index of its event. The partitions are read from
their positions at the start of the attempt. Found records are stored. Missing ones are known not to be stored only when
no record can arrive any more:

- The leader rejects records with a timestamp older than `LATE_S` (`message.timestamp.before.max.ms` of the topic), and
  those of an attempt carry its start time. So neither a paused process nor a delayed packet can add one later, as long
  as clocks differ by at most `SKEW_S`.
- The leader has no records beyond the readable end that are not replicated yet; or later records were read.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from rioni.domain.errors import NotFound, Unavailable
from rioni.storage.kafka.client import END, Connection, to_unavailable
from rioni.storage.kafka.idempotence.idempotency_index import ATTEMPT_BYTES, Attempt, EventRef
from rioni.storage.kafka.topics.append_probe import AppendProbe
from rioni.storage.kafka.topics.topics import LATE_S, Topics


HEADER = "X-Rioni-Attempt"
"""Header of records to be stored once: the attempt's id, and the event's index in the batch. Must never change."""

SKEW_S = 30.0
"""How far the clocks of nodes and brokers may differ."""

SETTLED_MS = int(1_000 * (LATE_S + SKEW_S))
"""This long after the start of an attempt, none of its records is accepted any more."""

MESSAGES_MAX = 1_000
POLL_EVERY_S = 0.1


class Recovered(NamedTuple):
    """Recovered outcome of an attempt."""

    stored: frozenset[EventRef]
    final: bool
    """Whether no further record can arrive."""


class AttemptRecovery:
    """Searches topics for the records of attempts; blocks."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
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
                messages = [*_next(consumer), *consumer.consume(MESSAGES_MAX, 0)]
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


def _next(consumer: Consumer) -> list[Message]:
    message = consumer.poll(POLL_EVERY_S)
    return [] if message is None else [message]


def header_of(attempt_id: bytes, index: int) -> tuple[str, bytes]:
    """Return the header of a record."""
    return HEADER, attempt_id + index.to_bytes(4)


def index_of(message: Message, attempt_id: bytes) -> int | None:
    """Return the index of a record's event in an attempt; None if the record is not part of it."""
    for name, value in message.headers() or ():
        if name == HEADER and isinstance(value, bytes) and value[:ATTEMPT_BYTES] == attempt_id:
            return int.from_bytes(value[ATTEMPT_BYTES:])
    return None
