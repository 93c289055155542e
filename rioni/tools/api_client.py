"""Makes single requests to a running broker."""

import http.client
from typing import Any

import orjson

from rioni.domain.errors import Unavailable
from rioni.tools.load_client import Server
from rioni.tools.load_report import OK_STATUSES


TIMEOUT_S = 30


def call(server: Server, method: str, path: str, body: Any = None, *, accept: tuple[int, ...] = ()) -> tuple[int, Any]:
    """Make one request and wait for its answer.

    Args:
        server: the target.
        method: the verb.
        path: below the base URL.
        body: sent as JSON; None for no body.
        accept: statuses that are answers too, beside those of success.

    Returns:
        Status and JSON.

    Raises:
        Unavailable: there is no answer, or one with another status.
    """
    connection: http.client.HTTPConnection
    if server.tls is None:
        connection = http.client.HTTPConnection(*server.address, timeout=TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(*server.address, timeout=TIMEOUT_S, context=server.tls)
    headers = {"Host": server.netloc, "Content-Type": "application/json"}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    try:
        connection.request(method, server.path + path, None if body is None else orjson.dumps(body), headers)
        response = connection.getresponse()
        status, answer = response.status, response.read()
    except (OSError, http.client.HTTPException) as ex:
        raise server.unreachable(ex) from ex
    finally:
        connection.close()
    if status not in OK_STATUSES and status not in accept:
        raise Unavailable(f"{method} {server.url}{path} answered {status}: {answer.decode(errors='replace')}")
    return status, orjson.loads(answer) if answer.startswith(b"{") else {}
