"""The standard library, where it has no public name for what the broker needs in processes that gevent has patched.

Reason: the lock of `logging` is a global variable, and `accept` makes a socket of the patched class. On an upgrade of
Python, look for `_lock` in `logging/__init__.py`, and for `_accept` in `socket.py`.

Versions: python>=3.11.
"""

import _thread  # threads: logs in native ones
import logging
import socket


def share_logging_with_threads() -> None:
    """Let native threads log too: they may wait for ever for a lock that is made for greenlets."""
    logging._lock = _thread.RLock()  # type: ignore[attr-defined]  # noqa: SLF001 - taken when a logger is first used


def accept_descriptor(listener: socket.socket) -> int:
    """Accept a connection and return its file descriptor; blocks, also in a patched process."""
    descriptor: int = listener._accept()[0]  # type: ignore[attr-defined]  # noqa: SLF001 - without a socket object
    return descriptor
