"""Work of a command between its transactions, without locks: queries to stores and slow checks."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Outside(NamedTuple):
    """Returned by a handler that needs work outside the transaction before it can continue.

    What it has recorded is committed before the work begins. If the work, or a later step, fails or never happens
    because the process dies, the log shows what is unfinished, and a periodic job completes it or rolls it back.
    """

    work: Callable[[], Any]
    """Does the work and returns the next command, which runs in the same context. May block and raise."""
    undo: Callable[[BaseException], Any] | None = None
    """Given the error of the work or of the next command, returns the command that rolls back what is recorded.
    None: nothing is recorded, or it is to be kept."""
