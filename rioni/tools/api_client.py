"""Makes single requests to a running broker, once each; refusals have the client's words."""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from rioni.client import ClientError, ConnectionFailed, Problem
from rioni.client.errors import members_of, problem
from rioni.client.retries import LOOK_FIRST, retry_after_s
from rioni.domain.errors import Unavailable
from rioni.tools.load_client import CONNECT_TIMEOUT_S, Server, reason_of
from rioni.tools.load_report import OK_STATUSES


TIMEOUT_S = 30


class RequestFailed(Unavailable):
    """There was no answer, or not all of it; has the client's error."""

    def __init__(self, text: str, error: ClientError) -> None:
        super().__init__(text)
        self.error = error


class RequestRefused(RequestFailed):
    """The broker refused a request."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem), problem)
        self.problem = problem


@contextmanager
def _exchange(server: Server, *, sent: bool, changes: bool = False) -> Iterator[None]:
    """Raise RequestFailed if the connection fails within the block."""
    try:
        yield
    except (OSError, http.client.HTTPException) as ex:
        temporary = not isinstance(ex, ssl.SSLCertVerificationError)
        error = ConnectionFailed(f"{server.url} does not answer: {reason_of(ex)}", sent=sent, temporary=temporary)
        failed = RequestFailed(str(server.unreachable(ex)), error)
        if sent and changes:
            failed.add_note(LOOK_FIRST)
        raise failed from ex


def refused(method: str, path: str, response: http.client.HTTPResponse, body: bytes) -> RequestRefused:
    """The error for an answer that is not one of success: the client's, which names the path without its query."""
    members = members_of(body.decode(errors="replace"), response.reason)
    request = f"{method} {path.partition('?')[0]}"
    wait_s = retry_after_s(response.getheader("Retry-After"))
    return RequestRefused(problem(response.status, members, request=request, retry_after_s=wait_s))


def _answer(server: Server, method: str, path: str, body: Any, accept: tuple[int, ...]) -> tuple[int, bytes]:
    """Make a request; the status and the body of the answer."""
    connection: http.client.HTTPConnection
    if server.tls is None:
        connection = http.client.HTTPConnection(*server.address, timeout=CONNECT_TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(*server.address, timeout=CONNECT_TIMEOUT_S, context=server.tls)
    connection.response_class = _Response
    headers = {"Host": server.netloc, "Content-Type": "application/json"}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    try:
        with _exchange(server, sent=False):
            connection.connect()
            connection.sock.settimeout(TIMEOUT_S)
        with _exchange(server, sent=True, changes=method in {"POST", "PATCH"}):
            connection.request(method, server.path + path, None if body is None else orjson.dumps(body), headers)
            response = connection.getresponse()
            found = response.read()
    finally:
        connection.close()
    if response.status not in OK_STATUSES and response.status not in accept:
        raise refused(method, server.path + path, response, found)
    return response.status, found


def call(server: Server, method: str, path: str, body: Any = None, *, accept: tuple[int, ...] = ()) -> tuple[int, Any]:
    """Make a request once, and wait for its answer.

    Args:
        server: the target.
        method: the verb.
        path: below the base URL, with the query.
        body: sent as JSON; None for no body.
        accept: statuses that are answers too, in addition to those of success.

    Returns:
        The status and the JSON of the answer, which is `{}` if it has none.

    Raises:
        RequestRefused: the answer has another status.
        RequestFailed: there is no answer.
    """
    status, text = _answer(server, method, path, body, accept)
    return status, orjson.loads(text) if text.startswith((b"{", b"[")) else {}


def call_text(server: Server, path: str) -> str:
    """Get a text; raises as `call`, and Unavailable if it is not UTF-8."""
    try:
        return _answer(server, "GET", path, None, ())[1].decode()
    except UnicodeDecodeError as ex:
        raise Unavailable(f"GET {server.url}{path} did not answer with text: the answer is not UTF-8.") from ex


class _Response(http.client.HTTPResponse):
    """A response whose head is whole."""

    def begin(self) -> None:
        """Read the head; http.client takes the end of the connection for the end of the head."""
        super().begin()
        if self.length is None and not self.chunked and not self.fp.peek(1):
            raise http.client.IncompleteRead(b"")
