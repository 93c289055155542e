"""The broker of a connection, for tools that make requests of their own."""

from typing import TYPE_CHECKING

from rioni.cli.connection import Connection


if TYPE_CHECKING:
    from rioni.tools.load_client import Server


def server(connection: Connection) -> "Server":
    """The broker; raises Invalid."""
    from rioni.tools.load_client import Server

    return Server(connection.url, connection.token, connection.ca_certificate)
