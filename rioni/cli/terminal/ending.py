"""How a command ends: its exit code, and how it is asked to end from outside."""

import signal
from collections.abc import Callable


# --- Exit codes of all commands; 0 is success ---

FOUND = 1
"""Findings or differences were asked for and found."""
NOTHING_FOUND = 1
"""Nothing was found, as with grep."""
REFUSED = 1
"""The command did its work, but the broker refused some of it."""
FAILED = 2
"""The command could not do its work."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""
BROKEN_PIPE = 141
"""The program that reads the output has ended, as shells count it."""


# --- Requests from outside to end a command: SIGTERM, and SIGHUP when its terminal is closed ---

ENDING = (signal.SIGTERM, signal.SIGHUP)


def when_asked_to_end(handler: Callable[[int, object], object]) -> None:
    """Have a handler called for each signal that asks to end, except those that are ignored, as `nohup` has it.

    Call it in the main thread.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
