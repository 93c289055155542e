"""What may help after an error of the client: the end of the line that says what went wrong."""

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from rioni.cli.connections.connection import Connection
from rioni.config import variables
from rioni.domain.nearest import nearest


if TYPE_CHECKING:
    from rioni.client import Client

Given = tuple[Callable[["Client"], Iterable[str]], str]
"""A name that the user gave, after the function that asks a broker for all names of this kind."""


NAMES_S = 5.0
"""Longest time of the requests for names, which the error waits for."""


def advice(ex: Exception, connection: Connection, given: Sequence[Given] = ()) -> str:
    """What may help, after a space; empty if nothing is known.

    Args:
        ex: the error.
        connection: of the command; the broker is asked for its names if it does not know one.
        given: names of things of the broker that the user gave.
    """
    from rioni.client import BadRequest, ConnectionFailed, Forbidden, NotFound, Unauthorized, Unprocessable

    found = ""
    if isinstance(ex, BadRequest | NotFound | Unprocessable):
        # The broker itself may have asked.
        found = "" if str(ex).endswith("?") else proposals(given, connection)
    elif isinstance(ex, Unauthorized) and connection.token_origin is None:
        found = f"The broker wants a token: set {variables.TOKEN}, or add a context with --token-command."
    elif isinstance(ex, Unauthorized):
        found = f"The token comes from {connection.token_origin}: that is where a new one belongs."
    elif isinstance(ex, Forbidden):
        found = "`rioni settings rights` shows what the broker lets you do."
    elif "CERTIFICATE_VERIFY_FAILED" in str(ex):
        found = "If its certificate is of an authority of your own, name that one: --ca-certificate FILE."
    elif isinstance(ex, ConnectionFailed) and not ex.sent:
        found = "Is the broker running there? `rioni context show` says where the URL comes from."
    return f" {found}" if found else ""


def proposals(given: Sequence[Given], connection: Connection) -> str:
    """A question about the first name that the broker does not know, if it is like one that it knows.

    Nothing where the broker does not say all names in time: the nearest one may be among the others.
    """
    from rioni.client import Client, ClientError

    if not given:
        return ""
    ends_s = monotonic() + NAMES_S
    try:
        with Client(
            connection.url,
            token=connection.token,
            ca_certificate=connection.ca_certificate,
            timeout_s=NAMES_S,
            attempts=1,
        ) as client:
            for names_of, name in given:
                names = []
                for each in names_of(client):
                    if monotonic() > ends_s:
                        return ""
                    names.append(each)
                if name not in names and (found := nearest(name, names)):
                    return f"Did you mean {found}?"
    except ClientError:
        pass
    return ""
