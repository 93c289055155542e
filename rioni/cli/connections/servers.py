"""The broker of a connection, for tools that make requests of their own."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from rioni.cli.connections.connection import Connection


if TYPE_CHECKING:
    from rioni.tools.load_client import Server


def server(connection: Connection) -> "Server":
    """The broker, whose outages are errors; raises Invalid."""
    from rioni.tools.load_client import Server

    return Server(connection.url, connection.token, connection.ca_certificate)


def patient_server(connection: Connection, pause: Callable[[float], object]) -> "Server":
    """The broker, whose outages of a minute are ridden out as by clients; raises Invalid.

    Args:
        connection: to the broker.
        pause: waits so many seconds; returns True to end the waiting.
    """
    from rioni.client.retries import RETRY_S
    from rioni.tools.load_client import Server

    return Server(connection.url, connection.token, connection.ca_certificate, retry_s=RETRY_S, pause=pause)
