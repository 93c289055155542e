"""The progress of a copy, in a file that outlives it: so that it goes on where it was interrupted, and repeats nothing.

Before a batch is published, the file gets its first and last place. After a crash the same batch is read and
published again, under the same idempotency key, and the broker knows whether it was stored.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import msgspec

from rioni.client import EventType
from rioni.domain.errors import Invalid
from rioni.files.locks import open_lock, try_lock
from rioni.files.plain import edited, file_errors, read_file


FORMAT = 1
SAVE_EVERY_S = 1.0
"""Seconds between writes of progress that needs no batch: events that the filter leaves out."""


class PartitionState(msgspec.Struct):
    """The progress of a partition of the source."""

    copied: str
    """The offset up to which everything is copied."""
    pending: str | None = None
    """The offset of the last event of a batch that may have been published."""
    read: int = 0
    """Events."""
    stored: int = 0
    """The events that the target has."""
    refused: int = 0


class Identity(msgspec.Struct):
    """An event type: the name may be used again, but not with the same time of creation."""

    event_type: str
    created_at: str | None

    @classmethod
    def of(cls, event_type: EventType) -> "Identity":
        """The identity of an event type as its broker has it."""
        return cls(event_type.name, event_type.created_at.isoformat() if event_type.created_at else None)


class CopyState(msgspec.Struct, kw_only=True):
    """The state of a copy."""

    format: int = FORMAT
    id: str = msgspec.field(default_factory=lambda: str(uuid4()))
    """A part of the idempotency keys that tells copies from each other."""
    source: Identity
    target: Identity
    options: dict[str, str]
    """The options that batches depend on, in addition to their events."""
    target_begin: dict[str, str]
    """The newest offset of each partition of the target before anything was copied."""
    lost: int = 0
    """Events that retention had removed before they were read."""
    partitions: dict[str, PartitionState] = {}


class StateFile:
    """The state of one copy; threads may change it at the same time.

    Args:
        path: of the file; None to keep it in memory.
        state: of a new copy.
    """

    def __init__(self, path: Path | None, state: CopyState) -> None:
        self.state = state
        self._path = path
        self._lock = threading.Lock()
        self._saved_s = 0.0

    def begin_batch(self, partition: str, to: str) -> None:
        """Write down that the events up to an offset are about to be published."""
        with self._lock:
            self.state.partitions[partition].pending = to
            self._save()

    def end_batch(self, partition: str, to: str, *, read: int, stored: int, refused: int) -> None:
        """Take note that everything up to an offset is copied; it is written down with the next batch."""
        with self._lock:
            each = self.state.partitions[partition]
            each.copied, each.pending = to, None
            each.read += read
            each.stored += stored
            each.refused += refused
            if time.monotonic() > self._saved_s + SAVE_EVERY_S:
                self._save()

    def begin_partition(self, partition: str, after: str) -> None:
        """Add a partition that is copied from an offset on."""
        with self._lock:
            self.state.partitions[partition] = PartitionState(after)

    def save(self) -> None:
        """Write everything down."""
        with self._lock:
            self._save()

    def _save(self) -> None:
        self._saved_s = time.monotonic()
        if self._path is None:
            return
        with file_errors(f"{self._path} can't be written", Invalid), edited(self._path) as file:
            file.text = msgspec.json.format(msgspec.json.encode(self.state), indent=1).decode() + "\n"


@contextmanager
def state_file(path: Path | None, new: CopyState) -> Iterator[StateFile]:
    """The state of a copy, which no other process uses meanwhile.

    Args:
        path: of the file, which is made if there is none; None to keep the state in memory.
        new: the state of a new copy, to which an older one has to fit.

    Raises:
        Invalid: the file can't be used, is of another copy, or in use.
    """
    if path is None:
        yield StateFile(None, new)
        return
    with file_errors(f"{path} can't be written", Invalid):
        lock = open_lock(path.with_name(f".{path.name}.running"))
    with lock:
        if not try_lock(lock.fileno()):
            raise Invalid(f"{path} is in use: another process copies with it.")
        state = _read(path)
        if state is None:
            yield StateFile(path, new)
            return
        if (state.source, state.target) != (new.source, new.target):
            raise Invalid(f"{path} is of {_other_copy(state, new)}")
        if state.options != new.options:
            raise Invalid(
                f"{path} is of a copy with other options: {msgspec.json.encode(state.options).decode()}. Name another "
                "file, or give the same options."
            )
        yield StateFile(path, state)


def _other_copy(state: CopyState, new: CopyState) -> str:
    """Describe the copy that a state belongs to if it does not fit the new copy, and what to do."""
    if (state.source.event_type, state.target.event_type) != (new.source.event_type, new.target.event_type):
        return f"a copy from {state.source.event_type} to {state.target.event_type}. Name another file."
    if state.target == new.target:
        return (
            f"a copy from an older event type {state.source.event_type}, which was deleted and created again since. "
            f"Remove the file to copy the new one from its begin; {state.target.event_type} keeps what it has."
        )
    return (
        f"a copy to an older event type {state.target.event_type}, which was deleted and created again since. Remove "
        "the file to copy everything to the new one."
    )


def _read(path: Path) -> CopyState | None:
    try:
        text = read_file(path)
        return msgspec.json.decode(text, type=CopyState) if text.strip() else None
    except FileNotFoundError:
        return None
    except OSError as ex:
        raise Invalid(f"{path} can't be read: {ex.strerror}.") from ex
    except msgspec.MsgspecError as ex:
        raise Invalid(f"{path} is not the state of a copy: {ex}.") from ex
