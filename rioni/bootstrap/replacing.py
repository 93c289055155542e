"""Terminates worker processes whose native threads hang, one at a time."""

import mmap
import os
import struct
from collections.abc import Callable

from gevent import monkey


KILLED = 1
"""Exit code of a process that did not end by itself; gunicorn then starts another one."""

_AT = struct.Struct("d")

# NOTE: the unpatched ones: this thread must end the process even if the hub hangs.
_start_new_thread: Callable[..., int] = monkey.get_original("_thread", "start_new_thread")
_sleep: Callable[[float], None] = monkey.get_original("time", "sleep")


class Replacements:
    """Records when a worker was last replaced, for all processes forked from this one."""

    def __init__(self, every_s: float) -> None:
        """Start without a recorded replacement.

        Args:
            every_s: minimum time between two replacements.
        """
        self._every_s = every_s
        self._shared = mmap.mmap(-1, _AT.size)
        _AT.pack_into(self._shared, 0, float("-inf"))

    def allowed(self, now_s: float) -> bool:
        """Whether a worker may be replaced now; if so, records its replacement.

        Args:
            now_s: by the monotonic clock of the machine.
        """
        (last_s,) = _AT.unpack_from(self._shared)
        if now_s - last_s < self._every_s:
            return False
        _AT.pack_into(self._shared, 0, now_s)
        return True


def end_within(seconds: float) -> None:
    """Kill this process if it has not ended by then: a native thread that hangs must not prevent its end."""
    _start_new_thread(_kill, (seconds,))


def _kill(seconds: float) -> None:
    _sleep(seconds)
    os._exit(KILLED)
