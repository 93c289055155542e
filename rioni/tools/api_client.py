"""Makes single requests to a running broker, whose answers may be read in pieces; refusals have the client's words."""

import http.client
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import orjson

from rioni.client import Problem
from rioni.client.errors import members_of, problem
from rioni.domain.errors import Unavailable
from rioni.tools.load_client import Server
from rioni.tools.load_report import OK_STATUSES


TIMEOUT_S = 30
READ_BYTES = 256 * 1_024


class RequestRefused(Unavailable):
    """The broker refused a request; has the client's error."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def _exchange(server: Server) -> Iterator[None]:
    """Raise Unavailable where the connection fails within the block."""
    try:
        yield
    except (OSError, http.client.HTTPException) as ex:
        raise server.unreachable(ex) from ex


class Answer:
    """The answer to a request, which is read while its connection is open; raises Unavailable if that breaks."""

    def __init__(self, server: Server, response: http.client.HTTPResponse) -> None:
        self._server, self._response = server, response
        self.status = response.status

    def read(self) -> bytes:
        """The whole body; blocks until it has arrived."""
        with _exchange(self._server):
            return self._response.read()

    def lines(self) -> Iterator[bytes]:
        """The lines of the body; blocks until the next one has arrived."""
        with _exchange(self._server):
            while line := self._response.readline():
                yield line


@contextmanager
def answered(
    server: Server,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: tuple[int, ...] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Answer]:
    """Make one request, and wait for its answer; the connection is closed at the end of the block.

    Args:
        server: the target.
        method: the verb.
        path: below the base URL, with the query.
        body: sent as JSON, bytes as they are; None for no body.
        accept: statuses that are answers too, in addition to those of success.
        headers: further ones.

    Raises:
        RequestRefused: the answer has another status.
        Unavailable: there is no answer.
    """
    connection: http.client.HTTPConnection
    if server.tls is None:
        connection = http.client.HTTPConnection(*server.address, timeout=TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(*server.address, timeout=TIMEOUT_S, context=server.tls)
    connection.response_class = _Response
    sent_headers = {"Host": server.netloc, "Content-Type": "application/json", **headers}
    if server.token:
        sent_headers["Authorization"] = f"Bearer {server.token}"
    try:
        sent = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        with _exchange(server):
            connection.request(method, server.path + path, sent, sent_headers)
            response = connection.getresponse()
        answer = Answer(server, response)
        if response.status not in OK_STATUSES and response.status not in accept:
            raise refused(method, server.path + path, response, answer.read())
        yield answer
    finally:
        connection.close()


def refused(method: str, path: str, response: http.client.HTTPResponse, body: bytes) -> RequestRefused:
    """The error for an answer that is not one of success: the client's, which names the path without its query."""
    members = members_of(body.decode(errors="replace"), response.reason)
    request = f"{method} {path.partition('?')[0]}"
    return RequestRefused(problem(response.status, members, request=request, retry_after_s=None))


def call(
    server: Server,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: tuple[int, ...] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, Any]:
    """Make a request as `answered` does; return the status and the JSON of the answer, which is `{}` if it has none."""
    with answered(server, method, path, body, accept=accept, headers=headers) as answer:
        text = answer.read()
    return answer.status, orjson.loads(text) if text.startswith((b"{", b"[")) else {}


def call_text(server: Server, path: str) -> str:
    """Get a text; raises as `answered`, and Unavailable if it is not UTF-8."""
    try:
        with answered(server, "GET", path) as answer:
            return answer.read().decode()
    except UnicodeDecodeError as ex:
        raise Unavailable(f"GET {server.url}{path} did not answer with text: the answer is not UTF-8.") from ex


class _Response(http.client.HTTPResponse):
    """A response that is read in large pieces.

    PERF: with the usual 8 kB, reading a stream takes half as much CPU again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fp = io.BufferedReader(self.fp.detach(), READ_BYTES)
