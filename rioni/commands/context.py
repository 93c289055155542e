"""Context of a command (subject and time), its work outside transactions, and errors of work on many items."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from rioni.domain.access.authorization import Subject
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.events import Origin


# --- Context of a command (subject and time), and its work outside transactions ---


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The context of one command, stored with every event that it yields."""

    subject: Subject
    origin: Origin

    @property
    def now(self) -> str:
        """The time of the command, RFC 3339 with milliseconds."""
        return self.origin.recorded_at

    @property
    def topic(self) -> str:
        """The id of the topic that the command creates, if it creates one."""
        return self.derive_id("topic")

    def derive_id(self, purpose: str) -> str:
        """An id for something that the command creates; deterministic, so the same if the command is run again."""
        return str(uuid5(UUID(self.origin.command_id), purpose))


class Outside(NamedTuple):
    """Returned by a handler that needs work outside the transaction before it can continue.

    The events that it has recorded are committed before the work begins. If the work, or a later step, fails or never
    happens because the process dies, the log shows what is unfinished, and a periodic job completes it or rolls it
    back.
    """

    work: Callable[[], Any]
    """Does the work and returns the next command, which runs in the same context. May block and raise."""
    undo: Callable[[BaseException], Any] | None = None
    """Given the error of the work or of the next command, returns the command that rolls back the recorded events.
    None: there are no such events, or they are to be kept."""


# --- Collects per-item errors so that the remaining items are processed, and raises them at the end ---


class ErrorCollector:
    """Collects errors by item."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    @contextlib.contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Collect an expected error of the block under a name, and suppress it."""
        try:
            yield
        except RioniError as ex:
            self._reasons.append(f"{what}: {ex}")

    def report(self) -> None:
        """Raise one error that names all collected ones, if there are any.

        Raises:
            Unavailable: something failed.
        """
        if self._reasons:
            raise Unavailable("; ".join(self._reasons))
