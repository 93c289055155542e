"""Wakeup pipe of the driver's send loop, in place of a socket pair.

It gets a byte for each request. Some 280 of them fill a pair of sockets. Who asks then is held up until the loop has
sent some: for ever, if it is asked from within the loop. And under gevent only one can be held up: a second one is told
that the connection is closed, though its request stays, and nothing wakes the loop for it.
"""

import os


class _End:
    """An end of a pipe, as far as it has to look like a socket."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The file descriptor."""
        return self._descriptor

    def send(self, data: bytes) -> int:
        """Write; never blocks."""
        return os.write(self._descriptor, data)

    def recv(self, size: int) -> bytes:
        """Read; never blocks."""
        return os.read(self._descriptor, size)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)


def waking_pair() -> tuple[_End, _End]:
    """What is read, and what is written: 65,536 bytes, which is more than this process ever asks for at a time."""
    read, write = os.pipe()
    for descriptor in (read, write):
        os.set_blocking(descriptor, False)
    return _End(read), _End(write)
