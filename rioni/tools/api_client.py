"""Makes single requests to a running broker, whose answers may be read in pieces; refusals have the client's words.

Outages are ridden out by the client's rule, for as long as `Server.retry_s` says.
"""

import http.client
import io
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import orjson

from rioni.client import ClientError, ConnectionFailed, Problem
from rioni.client.errors import members_of, problem
from rioni.client.retries import Attempts, retry_after_s
from rioni.domain.errors import Unavailable
from rioni.tools.load_client import CONNECT_TIMEOUT_S, Server, reason_of
from rioni.tools.load_report import OK_STATUSES


TIMEOUT_S = 30
READ_BYTES = 256 * 1_024


class RequestFailed(Unavailable):
    """There was no answer, or not all of it; has the client's error."""

    def __init__(self, text: str, error: ClientError) -> None:
        super().__init__(text)
        self.error = error

    def __str__(self) -> str:
        text, tried = super().__str__(), self.error.tried
        return text if tried is None else f"{text} ({tried})"


class RequestRefused(RequestFailed):
    """The broker refused a request."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem), problem)
        self.problem = problem


class Outage:
    """Waits while requests fail for a reason that passes: as clients do, and for as long as the server's `retry_s`.

    Args:
        server: the broker.
        repeatable: whether a request may be made again when it is unknown whether the broker processed it.
    """

    def __init__(self, server: Server, *, repeatable: bool = True) -> None:
        self._server, self._repeatable = server, repeatable
        self._attempts: Attempts | None = None

    def failed(self, ex: RequestFailed) -> None:
        """Wait before the next attempt; blocks that long.

        Raises:
            RequestFailed: this error, if no further attempt would help, or there was no progress for `retry_s`.
        """
        now_s = time.monotonic()
        if self._attempts is None:
            until_s = now_s + self._server.retry_s
            self._attempts = Attempts(now_s, again=self._repeatable, count_max=None, until_s=until_s, deadline_s=None)
        try:
            wait_s = self._attempts.failed(ex.error, now_s, now_s)
        except ClientError as final:
            for note in getattr(final, "__notes__", ()):
                ex.add_note(note)
            raise ex from ex.__cause__
        if self._server.pause(wait_s):
            raise ex

    def succeeded(self) -> None:
        """Note that there was progress: the next failure counts as the first."""
        if self._attempts is not None:
            self._attempts.succeeded(time.monotonic())
            self._attempts = None


@contextmanager
def _exchange(server: Server, *, sent: bool = True) -> Iterator[None]:
    """Raise RequestFailed if the connection fails within the block."""
    try:
        yield
    except (OSError, http.client.HTTPException) as ex:
        temporary = not isinstance(ex, ssl.SSLCertVerificationError)
        error = ConnectionFailed(f"{server.url} does not answer: {reason_of(ex)}", sent=sent, temporary=temporary)
        raise RequestFailed(str(server.unreachable(ex)), error) from ex


class Answer:
    """The answer to a request, which is read while its connection is open; raises RequestFailed if that breaks."""

    def __init__(self, server: Server, response: http.client.HTTPResponse) -> None:
        self._server, self._response = server, response
        self.status = response.status

    def read(self) -> bytes:
        """The whole body; blocks until it has arrived."""
        with _exchange(self._server):
            return self._response.read()

    def lines(self) -> Iterator[bytes]:
        """The lines of the body without their ends, each of them whole; blocks until the next one has arrived."""
        # The `readline` of http.client takes a connection that breaks between two chunks for the end of the body.
        pieces: list[bytes] = []
        while piece := self._piece():
            first, *others = piece.split(b"\n")
            pieces.append(first)
            for other in others:
                yield b"".join(pieces)
                pieces = [other]
        with _exchange(self._server):
            if any(pieces) or self._response.length:
                raise http.client.IncompleteRead(b"".join(pieces))

    def _piece(self) -> bytes:
        with _exchange(self._server):
            return self._response.read1(READ_BYTES)


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
    """Make one request once, and wait for its answer; the connection is closed at the end of the block.

    Args:
        server: the target.
        method: the verb.
        path: below the base URL, with the query.
        body: sent as JSON, bytes as they are; None for no body.
        accept: statuses that are answers too, in addition to those of success.
        headers: further ones.

    Raises:
        RequestRefused: the answer has another status.
        RequestFailed: there is no answer.
    """
    connection: http.client.HTTPConnection
    if server.tls is None:
        connection = http.client.HTTPConnection(*server.address, timeout=CONNECT_TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(*server.address, timeout=CONNECT_TIMEOUT_S, context=server.tls)
    connection.response_class = _Response
    sent_headers = {"Host": server.netloc, "Content-Type": "application/json", **headers}
    if server.token:
        sent_headers["Authorization"] = f"Bearer {server.token}"
    try:
        sent = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        with _exchange(server, sent=False):
            connection.connect()
            connection.sock.settimeout(TIMEOUT_S)
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
    wait_s = retry_after_s(response.getheader("Retry-After"))
    return RequestRefused(problem(response.status, members, request=request, retry_after_s=wait_s))


def call(
    server: Server,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: tuple[int, ...] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
    repeatable: bool | None = None,
) -> tuple[int, Any]:
    """Make a request as `answered` does, again if that may help; blocks for `Server.retry_s` and a time-out at most.

    Args:
        server: as for `answered`, and the following.
        method: the verb.
        path: below the base URL.
        body: to be sent.
        accept: further statuses.
        headers: further ones.
        repeatable: whether the request may be made again when it is unknown whether the broker processed it; by default
            all but those with POST and PATCH.

    Returns:
        The status and the JSON of the answer, which is `{}` if it has none.
    """
    again = method not in {"POST", "PATCH"} if repeatable is None else repeatable
    outage = Outage(server, repeatable=again)
    while True:
        try:
            with answered(server, method, path, body, accept=accept, headers=headers) as answer:
                text = answer.read()
        except RequestFailed as ex:
            outage.failed(ex)
        else:
            outage.succeeded()
            return answer.status, orjson.loads(text) if text.startswith((b"{", b"[")) else {}


def call_text(server: Server, path: str) -> str:
    """Get a text once; raises as `answered`, and Unavailable if it is not UTF-8."""
    try:
        with answered(server, "GET", path) as answer:
            return answer.read().decode()
    except UnicodeDecodeError as ex:
        raise Unavailable(f"GET {server.url}{path} did not answer with text: the answer is not UTF-8.") from ex


class _Response(http.client.HTTPResponse):
    """A response that is read in large pieces, and whose head is whole.

    PERF: with the usual 8 kB, reading a stream takes half as much CPU again.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fp = io.BufferedReader(self.fp.detach(), READ_BYTES)

    def begin(self) -> None:
        """Read the head; http.client takes the end of the connection for the end of the head."""
        super().begin()
        if self.length is None and not self.chunked and not self.fp.peek(1):
            raise http.client.IncompleteRead(b"")
