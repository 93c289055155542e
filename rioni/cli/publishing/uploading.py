"""Publishes the events of files: in batches, in order, with refused events by line."""

import hashlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from rioni.cli.publishing.publishing import BATCH_BYTES_MAX, BatchPublisher
from rioni.cli.publishing.records import Found, Record, Unreadable
from rioni.domain.errors import Invalid


LINGER_S = 0.5
"""Seconds that an event of a pipe or a terminal waits for further ones."""
WAITING_MAX = 64
"""Events that were read and wait for their batch."""
POLL_S = 0.2


class Rejected(NamedTuple):
    """Something that was not published."""

    source: str
    line: int
    step: str
    """`reading`, or the step of publishing that failed."""
    reason: str
    text: bytes
    """The event as it was read."""


class Line(NamedTuple):
    """A line of a file, and what was read from it."""

    source: str
    found: Found


def readable(lines: Iterable[Line], consequence: str = "nothing was done") -> Iterator[Record]:
    """The events of lines; raises Invalid, which ends with the consequence, at the first one that is none."""
    for line in lines:
        if isinstance(line.found, Unreadable):
            raise Invalid(f"{line.source}:{line.found.line}: {line.found.reason}; {consequence}.")
        yield line.found


@dataclass
class Totals:
    """The numbers of events by outcome, so far."""

    stored: int = 0
    rejected: int = 0
    """The number of events that were not published."""
    unreadable: int = 0
    """The number of `rejected` that are no events."""
    last: Line | None = None
    """The last line up to which everything is stored, or reported as rejected."""


@dataclass
class Upload:
    """Publishes the events of files.

    Args:
        publisher: of the batches.
        complete: makes an event complete; Invalid if that is not possible.
        event_type: the name, for the keys.
        batch: events of a batch at most.
        once: whether the keys are made from the content and its position, so that a repetition stores nothing again.
        variant: other settings that events depend on, for such keys.
        stop: whether to stop at the first event that is refused.
        rejected: called with each one.
        progress: called after each batch.
    """

    publisher: BatchPublisher
    complete: Callable[[bytes], bytes]
    event_type: str
    batch: int
    once: bool
    stop: bool
    rejected: Callable[[Rejected], None]
    progress: Callable[[Totals], None] = lambda _: None
    variant: str = ""
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256(f"{self.event_type} {self.batch} {self.variant}".encode())
        self._run, self._batches = uuid4(), 0

    def publish(self, lines: Iterable[Line | None]) -> Totals:
        """Publish events; blocks until all are stored, or one was refused if that is the end.

        Args:
            lines: those that were read; None if a batch should not wait for more.

        Raises:
            Invalid: a line is no event, and that is the end. Nothing of its batch is published.
            ClientError: the broker does not answer, or refuses for another reason than the events. `totals` has the
                number of events stored before.
        """
        waiting: list[Line] = []
        size = 0
        for line in lines:
            is_full = line is None or size + len(line.found.text) > BATCH_BYTES_MAX or len(waiting) == self.batch
            if waiting and is_full:
                if not self._flush(waiting):
                    return self.totals
                waiting, size = [], 0
            if line is not None:
                waiting.append(line)
                size += len(line.found.text)
        if waiting:
            self._flush(waiting)
        return self.totals

    def _flush(self, lines: Sequence[Line]) -> bool:
        """Publish a batch; whether to go on."""
        if self.stop:
            list(readable(lines, "its batch was not published"))
        events: dict[int, bytes] = {}
        rejected: dict[int, Rejected] = {}
        for number, line in enumerate(lines):
            event = self._completed(line)
            if isinstance(event, bytes):
                events[number] = event
                continue
            rejected[number] = event
            if self.stop:
                break
        numbers = list(events)
        outcome = self.publisher.publish(list(events.values()), self._key(lines))
        for index, step, reason in outcome.refused:
            line = lines[numbers[index]]
            rejected[numbers[index]] = Rejected(line.source, line.found.line, step, reason, line.found.text)
        if self.stop and rejected:
            rejected = {min(rejected): rejected[min(rejected)]}
        for number in sorted(rejected):
            self.rejected(rejected[number])
        self.totals.stored += outcome.stored
        self.totals.rejected += len(rejected)
        self.totals.unreadable += sum(isinstance(lines[number].found, Unreadable) for number in rejected)
        self.totals.last = lines[-1]
        self.progress(self.totals)
        return not (self.stop and rejected)

    def _completed(self, line: Line) -> bytes | Rejected:
        found = line.found
        if isinstance(found, Unreadable):
            return Rejected(line.source, found.line, "reading", found.reason, found.text)
        try:
            return self.complete(found.text)
        except Invalid as ex:
            return Rejected(line.source, found.line, "reading", str(ex), found.text)

    def _key(self, lines: Sequence[Line]) -> str:
        if not self.once:
            self._batches += 1
            return f"rioni-publish-{self._run}-{self._batches}"
        for line in lines:
            self._digest.update(b"%d:" % len(line.found.text) + line.found.text)
        return f"rioni-once-{self._digest.hexdigest()}"


def as_they_arrive(lines: Iterator[Line]) -> Iterator[Line | None]:
    """Lines of a pipe or terminal, and None if no further one comes for a moment; a thread reads them."""
    found: queue.Queue[Line | BaseException | None] = queue.Queue(WAITING_MAX)

    def read() -> None:
        try:
            for line in lines:
                found.put(line)
            found.put(None)
        except BaseException as ex:  # noqa: BLE001 - raised again by the thread that reads the queue
            found.put(ex)

    threading.Thread(target=read, daemon=True).start()
    flush_at = math.inf
    while True:
        try:
            line = found.get(timeout=POLL_S)
        except queue.Empty:
            pass
        else:
            if line is None:
                return
            if isinstance(line, BaseException):
                raise line
            flush_at = min(flush_at, time.monotonic() + LINGER_S)
            yield line
        if time.monotonic() >= flush_at:
            flush_at = math.inf
            yield None
