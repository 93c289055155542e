"""How a command is asked to end from outside: by SIGTERM, and by SIGHUP when its terminal is closed."""

import signal
from collections.abc import Callable


ENDING = (signal.SIGTERM, signal.SIGHUP)


def when_asked_to_end(handler: Callable[[int, object], object]) -> None:
    """Have a handler called for each signal that asks to end, except those that are ignored, as `nohup` has it.

    Call it in the main thread.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
