"""Requests to a broker: connections, tokens, retries, and answers as models or errors."""

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from rioni import __version__
from rioni.client import answers, errors, proxies, values
from rioni.client._async import concurrency
from rioni.client.keywords import Token
from rioni.client.retries import RETRY_S, Attempts
from rioni.wire.events import Batch


if TYPE_CHECKING:
    import httpx


DEFAULT_URL = "http://localhost:8080"
PROBLEM_CHARACTERS_MAX = 1_000_000
STREAMS_MAX = 1_000
"""Connections of a client at the same time."""
IDLE_MAX = 100
"""The most connections that are kept open for later requests."""
TIMEOUT_MIN_S = 0.001
"""The shortest time-out, for a request that begins just before its deadline."""
CONNECT_MAX_S = 5.0
"""Seconds for connecting. Hosts that come back get an attempt after 1, 3 and 7 seconds: better a new one."""

_IMPLEMENTATION = f"Python/{sys.version_info.major}.{sys.version_info.minor}"
_HEADERS = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "user-agent": f"rioni-client/{__version__} {_IMPLEMENTATION}",
}

T = TypeVar("T")


class Transport:
    """Makes the requests of a client; the connections are kept open and shared."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: Token = None,
        ca_certificate: str | Path | None = None,
        timeout_s: float = 30,
        retry_s: float = RETRY_S,
        attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], Any] | None = None,
    ) -> None:
        # PERF: it imports httpx, which takes half of the time that importing the client would take.
        from rioni.client._async.connections import connections  # noqa: PLC0415

        self.url = (url or os.environ.get("RIONI_URL") or DEFAULT_URL).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{self.url} is not the base URL of a broker; write it like {DEFAULT_URL}")
        self._token_source: Token = token if token is not None else os.environ.get("RIONI_TOKEN")
        self._token: str | None = None
        if not retry_s >= 0 or not timeout_s > 0 or (attempts is not None and attempts < 1):
            raise ValueError(
                f"retry_s ({retry_s}) must not be negative, timeout_s ({timeout_s}) must be more than 0, and attempts "
                f"({attempts}) at least 1"
            )
        self.retry_s, self.attempts, self.timeout_s = retry_s, attempts, timeout_s
        self._sleep = sleep
        self._failure: tuple[datetime, Exception] | None = None
        """The time since when requests fail, and the last error; None when one has succeeded since."""
        self._timeout = self._timeout_of(timeout_s)
        self._headers = {**_HEADERS, **answers.lowered(headers or {})}
        proxy = proxies.proxy_for(parts)
        self._route = "" if proxy is None else f" through the proxy {proxies.shown(proxy)}"
        # PERF: the client of httpx, with cookies, redirects and events, adds 100 µs to each request.
        self._http = connections(
            self.url,
            answers.trusted(ca_certificate) if parts.scheme == "https" else None,
            proxy,
            connections_max=STREAMS_MAX,
            idle_max=IDLE_MAX,
        )
        self._closed = False
        self._pauses: set[concurrency.Event] = set()

    async def close(self) -> None:
        """Close all connections; streams end with `ConnectionFailed`, and requests that wait with `ClientError`."""
        self._closed = True
        for pause in [*self._pauses]:
            pause.set()
        await self._http.aclose()

    async def request(
        self,
        method: str,
        template: str,
        *,
        path: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
        accept: tuple[int, ...] = (),
        retry_s: float | None = None,
        deadline_s: float | None = None,
        idle_s: float | None = None,
        sleep: Callable[[float], Any] | None = None,
    ) -> "httpx.Response":
        """Make a request, again if that may help; blocks at most `retry_s` and `timeout_s`.

        Args:
            method: the verb.
            template: the path below the base URL, with names in braces.
            path: values of these names.
            params: of the query; those that are None are left out, lists are repeated.
            body: sent as JSON; None for no body.
            content: the body as it is, instead of `body`.
            headers: further ones.
            repeatable: whether the request may be sent again when it is unknown whether the broker processed it; by
                default all but those with POST and PATCH.
            accept: statuses that are no errors, in addition to those of success.
            retry_s: seconds for which attempts begin; by default as long as those of the client.
            deadline_s: the time by which all attempts end, on the monotonic clock, instead of `retry_s`.
            idle_s: how long the broker may take to answer; by default as long as the client's time-out.
            sleep: waits between attempts; raises what ends them early.

        Raises:
            ConnectionFailed: there was no answer.
            Problem: the broker refused the request.
        """
        again = method not in {"POST", "PATCH"} if repeatable is None else repeatable

        async def make() -> "httpx.Response":
            request = await self._build(method, template, path, params, body, content, headers)
            if deadline_s is not None:
                request.extensions["timeout"] = self._timeout_until(deadline_s)
            elif idle_s is not None:
                request.extensions["timeout"] = self._timeout_of(idle_s)
            response = await self._send(request)
            if response.status_code not in accept and not response.is_success:
                raise self.problem(response)
            return response

        attempts: Attempts | None = None
        while True:
            began_s = time.monotonic()
            if deadline_s is not None and began_s >= deadline_s:
                raise errors.TimedOut(f"{self.url}: there was no time left to send a request", sent=False)
            try:
                response = await make()
            except errors.ClientError as ex:
                if attempts is None:
                    until_s = began_s + (self.retry_s if retry_s is None else retry_s)
                    count_max = self.attempts if deadline_s is None else None
                    attempts = Attempts(
                        began_s, again=again, count_max=count_max, until_s=until_s, deadline_s=deadline_s
                    )
                wait_s = attempts.failed(ex, began_s, time.monotonic())
                self.failed(ex)
            else:
                self._succeeded(attempts)
                return response
            await (sleep or self.pause)(wait_s)

    def _succeeded(self, attempts: Attempts | None) -> None:
        self._failure = None
        if attempts is not None:
            attempts.succeeded(time.monotonic())

    def failed(self, ex: errors.ClientError) -> None:
        """Note why a request is made again."""
        failure = self._failure
        self._failure = datetime.now(UTC) if failure is None else failure[0], ex

    def why(self, text: str) -> str:
        """A text, and since when and why requests fail, if they do."""
        if (failure := self._failure) is None:
            return text
        return f"{text}; requests fail since {failure[0]:%Y-%m-%dT%H:%M:%SZ}: {failure[1]}"

    async def pause(self, seconds: float) -> None:
        """Wait between two attempts; raises if the client is closed meanwhile."""
        if self._sleep is not None:
            await self._sleep(seconds)
            return
        pause = concurrency.Event()
        self._pauses.add(pause)
        try:
            if not self._closed:
                await concurrency.wait(pause, seconds)
        finally:
            self._pauses.discard(pause)
        if self._closed:
            raise errors.ClientError(self.why("The client was closed before a request succeeded"))

    async def fetch(self, kind: type[T], method: str, template: str, **request: Any) -> T:
        """Make a request as `request` does, and decode the JSON of its answer.

        Raises:
            UnexpectedAnswer: the JSON is of another form; and all that `request` raises.
        """
        return answers.decode(await self.request(method, template, **request), kind)

    async def delete(self, template: str, path: Mapping[str, str], *, retry_s: float | None = None) -> None:
        """Delete something; raises as `request`, but not if an earlier attempt may have deleted it."""
        try:
            await self.request("DELETE", template, path=path, retry_s=retry_s)
        except errors.NotFound as ex:
            if not ex.may_be_done:
                raise

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        template: str,
        *,
        path: Mapping[str, str],
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        idle_s: float | None = None,
    ) -> "AsyncIterator[httpx.Response]":
        """Make one request whose answer is read in pieces; raises as `request`, and is not repeated.

        Args:
            method: the verb.
            template: as for `request`.
            path: as for `request`.
            params: as for `request`.
            body: as for `request`.
            headers: as for `request`.
            idle_s: how long the answer may pause; by default as long as the client's time-out.
        """
        import httpx  # noqa: PLC0415 - see __init__

        request = await self._build(method, template, path, params, body, None, headers)
        if idle_s is not None:
            request.extensions["timeout"] = self._timeout_of(idle_s)
        response = await self._send(request, stream=True)
        try:
            if not response.is_success:
                raise self.problem(response, await _text_of(response))
            yield response
        except httpx.TransportError as ex:
            raise answers.connection_error(ex, self.url + self._route) from ex
        finally:
            await response.aclose()

    async def _build(
        self,
        method: str,
        template: str,
        path: Mapping[str, str] | None,
        params: Mapping[str, Any] | None,
        body: Any,
        content: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> "httpx.Request":
        import httpx  # noqa: PLC0415 - see __init__

        all_headers = {**self._headers, **answers.trace_headers(), **answers.lowered(headers or {})}
        if body is not None:
            values.check(body)
            content = values.encode(body)
            all_headers["content-type"] = "application/json"
        if self._token is None and self._token_source is not None:
            self._token = await self._new_token()
        if self._token is not None:
            all_headers["authorization"] = f"Bearer {self._token}"
        names = {name: quote(value, safe="") for name, value in (path or {}).items()}
        wanted = {name: value for name, value in (params or {}).items() if value is not None}
        return httpx.Request(
            method,
            answers.parsed(self.url + template.format(**names)),
            params=wanted or None,
            content=content,
            headers=all_headers,
            extensions={"timeout": self._timeout},
        )

    async def _send(self, request: "httpx.Request", *, stream: bool = False) -> "httpx.Response":
        """Send a request, once more with a new token if the present one is refused and can be renewed."""
        import httpx  # noqa: PLC0415 - see __init__

        try:
            response = await self._exchange(request, stream=stream)
            renewable = response.status_code == httpx.codes.UNAUTHORIZED and callable(self._token_source)
            if renewable and (token := await self._new_token()) is not None:
                await response.aclose()
                self._token = token
                request.headers["Authorization"] = f"Bearer {token}"
                response = await self._exchange(request, stream=stream)
        except httpx.TransportError as ex:
            raise answers.connection_error(ex, self.url + self._route) from ex
        return response

    async def _exchange(self, request: "httpx.Request", *, stream: bool) -> "httpx.Response":
        if self._closed:
            raise errors.ClientError(self.why("The client is closed"))
        response = await self._http.handle_async_request(request)
        response.request = request
        if not stream:
            await response.aread()
        return response

    async def _new_token(self) -> str | None:
        """The token now; None if its source has none, and requests are made without."""
        if callable(self._token_source):
            return await concurrency.call(self._token_source)
        return str(self._token_source)

    def problem(self, response: "httpx.Response", text: str | None = None) -> errors.Problem:
        """The error for an answer that is not one of success; `text` is its body if it was read as a stream."""
        return answers.problem(response, self._route, text)

    def _timeout_of(self, idle_s: float) -> Mapping[str, float | None]:
        import httpx  # noqa: PLC0415 - see __init__

        return httpx.Timeout(self.timeout_s, read=idle_s, connect=min(self.timeout_s, CONNECT_MAX_S)).as_dict()

    def _timeout_until(self, deadline_s: float) -> Mapping[str, float | None]:
        import httpx  # noqa: PLC0415 - see __init__

        left_s = min(max(deadline_s - time.monotonic(), TIMEOUT_MIN_S), self.timeout_s)
        return httpx.Timeout(left_s, connect=min(left_s, CONNECT_MAX_S)).as_dict()


async def _text_of(response: "httpx.Response") -> str:
    """Read the text of a problem, and no more than a problem has."""
    pieces, size = [], 0
    async for piece in response.aiter_text():
        pieces.append(piece)
        size += len(piece)
        if size > PROBLEM_CHARACTERS_MAX:
            break
    return "".join(pieces)[:PROBLEM_CHARACTERS_MAX]


# --- The batches of a stream, one after the other, from the bytes of an answer ---

BATCH_BYTES_MAX = 500_000_000
"""The most bytes of a line: more than any broker sends."""


async def read_batches(response: "httpx.Response") -> AsyncIterator[Batch]:
    """The batches of a stream, each as soon as it has arrived; blocks until then.

    Raises:
        UnexpectedAnswer: this is not a stream of batches.
        httpx.TransportError: the connection broke.
    """
    # PERF: lines are copied once, when their pieces are joined; copying takes as long as finding the ends of events.
    pieces: list[memoryview] = []
    size = 0
    async for data in response.aiter_bytes():
        view, begin = memoryview(data), 0
        while (end := data.find(b"\n", begin)) >= 0:
            line = b"".join([*pieces, view[begin:end]])
            pieces.clear()
            size, begin = 0, end + 1
            if line and not line.isspace():
                yield answers.batch(line)
        if begin < len(data):
            pieces.append(view[begin:])
            size += len(data) - begin
            if size > BATCH_BYTES_MAX:
                raise errors.UnexpectedAnswer(f"The stream sent a line of more than {BATCH_BYTES_MAX:,} bytes.")
