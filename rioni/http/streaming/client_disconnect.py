"""Detects client disconnects."""

import socket


TCP_ESTABLISHED = 1


def is_disconnected(connection: socket.socket) -> bool:
    """Whether a client has disconnected, by the state of its TCP connection; a half-closed one counts as well.

    PERF: the state of the connection costs 1 us and never blocks, as a look at what there is to receive does under
    gevent.
    """
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED
    except OSError:
        return True
