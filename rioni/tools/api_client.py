"""Makes single requests to a running broker."""

import http.client
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

from rioni.domain.errors import Unavailable
from rioni.tools.load_client import Server
from rioni.tools.load_report import OK_STATUSES


TIMEOUT_S = 30


def call_text(server: Server, path: str) -> str:
    """Get a text; raises as `call`, and Unavailable where it is not UTF-8."""
    try:
        return _call(server, "GET", path, None)[1].decode()
    except UnicodeDecodeError as ex:
        raise Unavailable(f"GET {server.url}{path} answered something else than text.") from ex


def call(
    server: Server,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: tuple[int, ...] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, Any]:
    """Make one request and wait for its answer.

    Args:
        server: the target.
        method: the verb.
        path: below the base URL.
        body: sent as JSON, bytes as they are; None for no body.
        accept: statuses that are answers too, beside those of success.
        headers: further ones.

    Returns:
        Status and JSON.

    Raises:
        Unavailable: there is no answer, or one with another status.
    """
    status, answer = _call(server, method, path, body, accept, headers)
    return status, orjson.loads(answer) if answer.startswith((b"{", b"[")) else {}


def _call(
    server: Server,
    method: str,
    path: str,
    body: Any,
    accept: tuple[int, ...] = (),
    further: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, bytes]:
    connection: http.client.HTTPConnection
    if server.tls is None:
        connection = http.client.HTTPConnection(*server.address, timeout=TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(*server.address, timeout=TIMEOUT_S, context=server.tls)
    headers = {"Host": server.netloc, "Content-Type": "application/json", **further}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    try:
        sent = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        connection.request(method, server.path + path, sent, headers)
        response = connection.getresponse()
        status, answer = response.status, response.read()
    except (OSError, http.client.HTTPException) as ex:
        raise server.unreachable(ex) from ex
    finally:
        connection.close()
    if status not in OK_STATUSES and status not in accept:
        raise Unavailable(f"{method} {server.url}{path} answered {status}: {answer.decode(errors='replace')}")
    return status, answer
