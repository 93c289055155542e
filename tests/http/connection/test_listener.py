"""Memory that the kernel takes for a client that does not read."""

import contextlib
import socket

import pytest

from rioni.http.connection.listener import UNSENT_BYTES_MAX, listen
from tests.support.waiting import WAIT_S


PIECE_BYTES = 65_536
RECEIVED_BYTES_MAX = 4_096


def taken_bytes(connection):
    """How much a socket takes until it takes no more."""
    connection.settimeout(0.1)  # a client that reads nothing makes no room later
    taken = 0
    with contextlib.suppress(TimeoutError):
        while True:
            taken += connection.send(b"x" * PIECE_BYTES)
    return taken


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_takes_little_for_a_client_that_does_not_read(host):
    """Reference common#answers-in-flight: by default it takes megabytes, which no budget counts."""
    with listen(host, 0) as listener, socket.socket(listener.family) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES_MAX)
        client.settimeout(WAIT_S)
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert taken_bytes(accepted) <= 2 * UNSENT_BYTES_MAX
