"""Wakes the driver's send loop with a pipe instead of a socket pair.

Each request writes a byte. Some 280 of them fill a socket pair. The next request then blocks until the loop has sent
some: for ever, if it is made from within the loop. And under gevent only one request can block: a second one gets an
error that the connection is closed, though its request stays queued, and nothing wakes the loop for it.
"""

import os


class _End:
    """An end of a pipe with the methods of a socket that the driver uses."""

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
    """Return the read and write ends: 65,536 bytes, which is more than this process ever has pending."""
    read, write = os.pipe()
    for descriptor in (read, write):
        os.set_blocking(descriptor, False)
    return _End(read), _End(write)
