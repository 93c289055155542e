"""Publishes events in batches: completes their metadata, reports which ones were refused, and reads pipes."""

import hashlib
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from rioni.cli.publishing.records import FileEvent, Found, Unreadable
from rioni.client import BadRequest, PublishingFailed, TooLarge, Unprocessable, metadata
from rioni.domain.errors import Invalid


# --- Completes the metadata of events before they are published, and removes what only the broker may set ---

SET_BY_BROKER = frozenset({"published_by", "received_at", "version"})
"""Members that brokers refuse in events, although delivered events have them."""

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Completion:
    """Completes events of one event type.

    Args:
        event_type: the name.
        key: the path of the member that becomes `metadata.partition_compaction_key`.
        partition: becomes `metadata.partition`.
        removed: further members of the metadata that are removed.
        new: which members a new event gets; by default a random `eid`, and the present time as `occurred_at`.
    """

    def __init__(
        self,
        event_type: str,
        *,
        key: str | None = None,
        partition: str | None = None,
        removed: Collection[str] = (),
        new: Callable[[], Mapping[str, Any]] = metadata,
    ) -> None:
        self._event_type, self._new = event_type, new
        self._removed = SET_BY_BROKER.union(removed)
        self._key = key.split(".") if key else None
        self._fixed = {} if partition is None else {"partition": partition}

    def complete(self, event: bytes, new: Mapping[str, Any] | None = None) -> bytes:
        """The event with `eid` and `occurred_at`; all members but `metadata` stay as they are.

        Args:
            event: a JSON object.
            new: the values that it gets if they are missing; by default as for all events.

        Raises:
            Invalid: the event has no key, though there has to be one.
        """
        added = dict(self._fixed)
        new = self._new() if new is None else new
        if self._key is not None:
            added["partition_compaction_key"] = _key_of(event, self._key)
        # Bytes that do not contain the word can't have the member.
        members = _decode(event) if b'"metadata"' in event or b"\\u" in event else {}
        given = members.get("metadata")
        if given is None:
            inner = event.strip()[1:-1].strip()
            return b'{"metadata":' + _encode({**new, **added}) + (b"," if inner else b"") + inner + b"}"
        if not bytes(given).startswith(b"{"):
            return event  # the broker reports what is wrong with it
        return self._with(event, members, _decode(given), new, added)

    def _with(
        self,
        event: bytes,
        members: dict[str, msgspec.Raw],
        given: dict[str, msgspec.Raw],
        new: Mapping[str, Any],
        added: Mapping[str, Any],
    ) -> bytes:
        stale = given.keys() & self._removed
        named = given.get("event_type")
        if named is not None and msgspec.json.decode(named) != self._event_type:
            stale.add("event_type")
        if not stale and not added and {"eid", "occurred_at"} <= given.keys():
            return event
        kept = {name: value for name, value in given.items() if name not in stale}
        completed = _encode({**new, **kept, **added})
        return _encode({**members, "metadata": msgspec.Raw(completed)})


def _key_of(event: bytes, path: list[str]) -> str:
    value = msgspec.json.decode(event)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or value == "" or isinstance(value, dict | list):
        raise Invalid(f"it has no key: {'.'.join(path)} is missing, or no text or number")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- Publishes batches whose events may be refused: reports which ones, and stores the others in their order ---

BATCH_BYTES_MAX = 4_000_000
"""Events of a batch; brokers and proxies refuse large bodies."""

_PARTLY = "publishing"
"""The step of results if some events are stored and others not, or perhaps not."""
_STORED_BEFORE = "Idempotency-Key: another batch was stored under this key"


class Refusal(NamedTuple):
    """An event that the broker refused."""

    number: int
    """The place of the event in the batch, from 0."""
    step: str
    reason: str


class BatchOutcome(NamedTuple):
    """The outcome of a batch.

    Args:
        stored: how many events are stored, or were before.
        refused: the others; if it was to stop, only the first one, and nothing after it is stored.
    """

    stored: int
    refused: Sequence[Refusal]


Send = Callable[[Sequence[bytes], str], object]
"""Publishes events under an idempotency key; tries again, and raises, as `Client.publish` does."""


class BatchPublisher:
    """Publishes batches.

    Args:
        send: publishes events.
        repeats: whether the key is made from what the batch consists of. Then a batch that was stored under it is this
            one, even if the time in its metadata is another.
        stop: whether to stop at the first event that is refused.
    """

    def __init__(self, send: Send, *, repeats: bool = False, stop: bool = True) -> None:
        self._send, self._repeats, self._stop = send, repeats, stop

    def publish(self, events: Sequence[bytes], key: str) -> BatchOutcome:
        """Publish a batch; blocks until its outcome is known.

        Brokers refuse a batch as a whole and name the first event at fault. So the events before it are published by
        themselves, then the events after it.

        Args:
            events: their JSON, with metadata.
            key: the idempotency key.

        Raises:
            ClientError: there is no answer for as long as `send` tries, or a refusal that is not about the events.
        """
        stored = 0
        refused: list[Refusal] = []
        # The parts still to be published, the last one first, and the known refusals between them.
        todo: list[tuple[int, int] | Refusal] = [(0, len(events))]
        while todo:
            match todo.pop():
                case Refusal() as refusal:
                    refused.append(refusal)
                    if self._stop:
                        break
                case (start, end) if start < end:
                    answer = self._try(events[start:end], key if end - start == len(events) else f"{key}/{start}-{end}")
                    if answer is None:
                        stored += end - start
                    elif answer.reason:
                        index = start + answer.number
                        todo += [(index + 1, end), answer._replace(number=index), (start, index)]
                    else:
                        middle = start + answer.number
                        todo += [(middle, end), (start, middle)]
        return BatchOutcome(stored, refused)

    def _try(self, events: Sequence[bytes], key: str) -> Refusal | None:
        """Return the refusal, without a reason if the batch is to be divided; None if all events are stored."""
        try:
            self._send(events, key)
        except PublishingFailed as ex:
            refusal = _first(ex)
            if refusal.step == _PARTLY:
                raise  # no event is at fault
            return refusal
        except (BadRequest, TooLarge) as ex:
            # One of the events is at fault, or all together are too much: the broker does not report which.
            reason = f"{ex.title}: {ex.detail}" if ex.detail else str(ex)
            return Refusal(len(events) // 2, "validating", reason if len(events) == 1 else "")
        except Unprocessable as ex:
            if not (self._repeats and ex.detail.startswith(_STORED_BEFORE)):
                raise
        return None


def _first(ex: PublishingFailed) -> Refusal:
    """The first event that failed; raises the error if the broker names none."""
    for index, result in enumerate(ex.results):
        if result.publishing_status == "failed":
            return Refusal(index, result.step, result.detail or "no reason given")
    raise ex


# --- Publishes the events of files: in batches, in order, with refused events by line ---


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


def readable(lines: Iterable[Line], consequence: str = "nothing was done") -> Iterator[FileEvent]:
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
        for line in chain(lines, [None]):
            is_full = line is None or size + len(line.found.text) > BATCH_BYTES_MAX or len(waiting) == self.batch
            if waiting and is_full:
                if not self._flush(waiting):
                    return self.totals
                waiting, size = [], 0
            if line is not None:
                waiting.append(line)
                size += len(line.found.text)
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
