"""Work of a command between its transactions, without locks: queries to stores and slow checks."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Outside(NamedTuple):
    """Returned by a handler that needs work outside the transaction before it can continue.

    What it has recorded is committed before the work begins. So the work, and whatever comes after it, may fail or
    never happen, because the process dies: the log then says what is unfinished, and a periodic job completes it or
    takes it back.
    """

    work: Callable[[], Any]
    """Returns the command that goes on, which runs under the same circumstances. May block and raise."""
    undo: Callable[[BaseException], Any] | None = None
    """Given what the work or the following command has raised, returns the command that takes back what is recorded.
    None: nothing is recorded, or it stands."""
