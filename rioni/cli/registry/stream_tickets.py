"""Prints the address of a stream with a ticket in place of a token, for browsers and others that send no token."""

from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from rioni.cli.connections.session import Session


if TYPE_CHECKING:
    from rioni.client.models.events import StreamTicket


def show_ticket(session: Session, ticket: "StreamTicket") -> None:
    """Print the address of the stream that a ticket opens, and on standard error until when."""
    base = session.connection.url.rstrip("/")
    # The broker names the path with its base path, which the URL of the broker ends with.
    path = ticket.path.removeprefix(urlsplit(base).path)
    url = f"{base}{path}?{urlencode({'ticket': ticket.ticket})}"
    session.output.line({"url": url, "expires_at": ticket.expires_at}, url)
    session.output.note(
        f"This address opens one stream of server-sent events, until {ticket.expires_at:%H:%M:%SZ}. It permits what "
        "your token permits: keep it secret."
    )
