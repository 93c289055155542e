"""The socket on which clients connect."""

import errno
import socket

from rioni.domain.addresses import host_and_port
from rioni.domain.errors import Unavailable


BACKLOG = 2_048
UNSENT_BYTES_MAX = 262_144
"""What the kernel takes of an answer before it is sent: the rest is in the budget of answers.

By itself it takes up to 4 MB for each client that does not read (`net.ipv4.tcp_wmem`). A smaller buffer (`SO_SNDBUF`)
would also bound what is under way, and so the rate to clients that are far away.
"""


def listen(host: str, port: int) -> socket.socket:
    """Listen; connections that are accepted have the options of this socket.

    Raises:
        Unavailable: the port is taken or not allowed, or the address is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as ex:
        where = host_and_port(host, port)
        if ex.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"{where} is in use by another process. Stop it, or name another port: --port or RIONI_PORT."
            ) from ex
        raise Unavailable(f"{where} can't be listened on: {ex.strerror}. Name another host or port.") from ex
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    return listener
