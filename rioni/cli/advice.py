"""What may help after an error of the client: the end of the line that says what went wrong."""

import re
from urllib.parse import unquote

from rioni.cli.connection import Connection
from rioni.cli.names import proposal
from rioni.config import variables


NAMES_S = 5.0
"""Longest time of the request for names, which the error waits for."""
_NAMED = re.compile(r"/(?P<kind>event-types|storages)/(?P<name>[^/?]+)")
"""The path of a request, where it names one thing of many."""


def advice(ex: Exception, connection: Connection) -> str:
    """What may help, after a space; empty if nothing is known.

    Args:
        ex: the error.
        connection: of the command; the broker is asked for its names where one is not known.
    """
    from rioni.client import ConnectionFailed, Forbidden, NotFound, Unauthorized

    found = ""
    if isinstance(ex, NotFound):
        found = _nearest(ex.request, connection)
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


def _nearest(request: str, connection: Connection) -> str:
    """A question, where a name that the broker does not know is like one that it knows."""
    from rioni.client import Client, ClientError

    found = _NAMED.search(request)
    if found is None:
        return ""
    try:
        with Client(
            connection.url,
            token=connection.token,
            ca_certificate=connection.ca_certificate,
            timeout_s=NAMES_S,
            attempts=1,
        ) as client:
            if found["kind"] == "event-types":
                names = [each.name for each in client.event_types.list()]
            else:
                names = [each.id for each in client.storages.list()]
    except ClientError:
        return ""
    name = unquote(found["name"])
    proposed = proposal(name, names)
    # A name that is there was not what is missing.
    return "" if name in names or not proposed.startswith(";") else f"D{proposed.removeprefix('; d')}"
