"""A launcher that goes on between test runs, if a developer has started one: `rioni-testing warm`."""

import contextlib
import errno
import os
import socket
import struct
import sys
import tempfile
from pathlib import Path


GREETS_WITHIN_S = 10.0
"""Seconds within which it greets: it may be loading the server again, as a file has changed."""
GREETING_BYTES_MAX = 10_000
PARALLEL_MAX = 128
"""Test processes that wait for it."""

_CREDENTIALS = struct.Struct("3i")


def path() -> Path:
    """The path of its socket; only processes of this user can connect."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"rioni-testing-{os.getuid()}-warm")


def greeting() -> bytes:
    """The greeting to test processes, which use only one of the same Python and package."""
    return f"{sys.executable}\n{Path(__file__).resolve()}".encode()


def connected() -> socket.socket | None:
    """Connect to it; None if there is none for this process."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(OSError):
        connection.connect(str(path()))
        connection.settimeout(GREETS_WITHIN_S)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(credentials)
        if user == os.getuid() and connection.recv(GREETING_BYTES_MAX) == greeting():
            connection.settimeout(None)
            return connection
    connection.close()
    return None


def listener() -> socket.socket:
    """Listen on the socket.

    Raises:
        OSError: there is one already, or the socket can't be made.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        if other.connect_ex(str(path())) == 0:
            raise FileExistsError(errno.EADDRINUSE, "another one runs already", str(path()))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    umask = os.umask(0o177)
    beside = path().with_name(f"{path().name}-{os.getpid()}")
    try:
        listening.bind(str(beside))
        listening.listen(PARALLEL_MAX)
        # Clients that find the socket can connect; a socket already there was left by a killed process.
        beside.replace(path())
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(umask)
    return listening
