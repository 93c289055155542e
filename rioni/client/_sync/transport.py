"""Requests to a broker: connections, tokens, retries, and answers as models or errors."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from rioni import __version__
from rioni.client import errors
from rioni.client._sync import concurrency
from rioni.client.retries import RETRY_AFTER_MAX_S, may_help, retry_after_s


if TYPE_CHECKING:
    import ssl

    import httpx
    from tenacity import Retrying


DEFAULT_URL = "http://localhost:8080"
PROBLEM_BYTES_MAX = 1_000_000
STREAMS_MAX = 1_000
"""Connections of a client at the same time."""
IDLE_MAX = 100
"""Of them, those that are kept open for requests to come."""
URLS_MAX = 1_000
"""Addresses that are not parsed again."""
TIMEOUT_MIN_S = 0.001
"""For a request that begins just before its deadline."""
WAIT_FIRST_S = 0.1
WAIT_MAX_S = 10.0

_IMPLEMENTATION = f"Python/{sys.version_info.major}.{sys.version_info.minor}"
_HEADERS = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "user-agent": f"rioni-client/{__version__} {_IMPLEMENTATION}",
}

T = TypeVar("T")
Token = str | Callable[[], Any] | None


class Transport:
    """Makes the requests of a client; the connections are kept open and shared."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: Token = None,
        ca_certificate: str | Path | None = None,
        timeout_s: float = 30,
        attempts: int = 5,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        # PERF: half of the time that importing the client would take.
        import httpx  # noqa: PLC0415

        from rioni.client._sync.connections import connections  # noqa: PLC0415

        self.url = (url or os.environ.get("RIONI_URL") or DEFAULT_URL).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{self.url} is not the base URL of a broker; write it like {DEFAULT_URL}")
        self._token_source: Token = token if token is not None else os.environ.get("RIONI_TOKEN")
        self._token: str | None = None
        self.attempts, self.timeout_s = attempts, timeout_s
        self._timeout = httpx.Timeout(timeout_s).as_dict()
        self._headers = {**_HEADERS, **_lowered(headers or {})}
        # PERF: the client of httpx, with cookies, redirects and events, adds 100 µs to each request.
        self._http = connections(
            self.url,
            _trusted(ca_certificate) if parts.scheme == "https" else None,
            _proxy_for(parts),
            connections_max=STREAMS_MAX,
            idle_max=IDLE_MAX,
        )
        self._closed = False

    def close(self) -> None:
        """Close all connections; streams end with `ConnectionFailed`."""
        self._closed = True
        self._http.close()

    def request(
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
        deadline_s: float | None = None,
        idle_s: float | None = None,
        sleep: Callable[[float], Any] = concurrency.sleep,
    ) -> "httpx.Response":
        """Make a request, again where that may help; blocks at most `attempts` times `timeout_s`, and between them.

        Args:
            method: the verb.
            template: the path below the base URL, with names in braces.
            path: values of these names.
            params: of the query; those that are None are left out, lists are repeated.
            body: sent as JSON; None for no body.
            content: the body as it is, in place of `body`.
            headers: further ones.
            repeatable: whether the request may be sent again when it is unknown whether the broker processed it; by
                default all but those with POST and PATCH.
            accept: statuses that are no errors, beside those of success.
            deadline_s: until when the request is repeated, on the monotonic clock, in place of the number of attempts.
            idle_s: how long the broker may take to answer; by default as long as the client's time-out.
            sleep: waits between attempts.

        Raises:
            ConnectionFailed: there was no answer.
            Problem: the broker refused the request.
        """
        again = method not in {"POST", "PATCH"} if repeatable is None else repeatable

        begun_s = 0.0

        def make() -> "httpx.Response":
            nonlocal begun_s
            begun_s = time.monotonic()
            request = self._build(method, template, path, params, body, content, headers)
            if deadline_s is not None:
                request.extensions["timeout"] = self._timeout_until(deadline_s)
            elif idle_s is not None:
                request.extensions["timeout"] = self._timeout_of(idle_s)
            response = self._send(request)
            if response.status_code not in accept and not response.is_success:
                raise self.problem(response)
            return response

        # PERF: preparing retries takes 80 µs, and hardly any request needs them.
        if _is_over(deadline_s):
            raise errors.TimedOut(f"{self.url}: there was no time left to send a request", sent=False)
        failure: errors.ClientError | None = None
        try:
            return make()
        except errors.ClientError as ex:
            failure = ex

        def is_too_late(state: Any) -> bool:
            # The error of a broker that answers says more than that of one more attempt, which would be cut off.
            answered = isinstance(state.outcome.exception(), errors.Problem)
            took_s = time.monotonic() - begun_s if answered else 0.0
            return _is_over(deadline_s, state.upcoming_sleep + took_s)

        stop = None if deadline_s is None else is_too_late
        for attempt in self._retrying(again, stop, sleep):
            with attempt:
                if attempt.retry_state.attempt_number == 1 or _is_over(deadline_s):
                    raise failure
                response = make()
        return response

    def fetch(self, kind: type[T], method: str, template: str, **request: Any) -> T:
        """Make a request as `request` does, and decode the JSON of its answer.

        Raises:
            UnexpectedAnswer: the JSON is of another form; and all that `request` raises.
        """
        return decode(self.request(method, template, **request), kind)

    @contextmanager
    def stream(
        self,
        method: str,
        template: str,
        *,
        path: Mapping[str, str],
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        idle_s: float | None = None,
    ) -> "Iterator[httpx.Response]":
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

        request = self._build(method, template, path, params, body, None, headers)
        if idle_s is not None:
            request.extensions["timeout"] = self._timeout_of(idle_s)
        response = self._send(request, stream=True)
        try:
            if not response.is_success:
                _read_bounded(response)
                raise self.problem(response)
            yield response
        except httpx.TransportError as ex:
            raise _connection_error(ex, self.url) from ex
        finally:
            response.close()

    def _build(
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

        all_headers = {**self._headers, **trace_headers(), **_lowered(headers or {})}
        if body is not None:
            content = msgspec.json.encode(body)
            all_headers["content-type"] = "application/json"
        if self._token is None and self._token_source is not None:
            self._token = self._new_token()
        if self._token is not None:
            all_headers["authorization"] = f"Bearer {self._token}"
        names = {name: quote(value, safe="") for name, value in (path or {}).items()}
        wanted = {name: value for name, value in (params or {}).items() if value is not None}
        return httpx.Request(
            method,
            _parsed(self.url + template.format(**names)),
            params=wanted or None,
            content=content,
            headers=all_headers,
            extensions={"timeout": self._timeout},
        )

    def _send(self, request: "httpx.Request", *, stream: bool = False) -> "httpx.Response":
        """Send a request, once more with a new token where the present one is refused and can be renewed."""
        import httpx  # noqa: PLC0415 - see __init__

        try:
            response = self._exchange(request, stream=stream)
            renewable = response.status_code == httpx.codes.UNAUTHORIZED and callable(self._token_source)
            if renewable and (token := self._new_token()) is not None:
                response.close()
                self._token = token
                request.headers["Authorization"] = f"Bearer {token}"
                response = self._exchange(request, stream=stream)
        except httpx.TransportError as ex:
            raise _connection_error(ex, self.url) from ex
        return response

    def _exchange(self, request: "httpx.Request", *, stream: bool) -> "httpx.Response":
        if self._closed:
            raise errors.ClientError("The client is closed")
        response = self._http.handle_request(request)
        response.request = request
        if not stream:
            response.read()
        return response

    def _new_token(self) -> str | None:
        """The token now; None where its source has none, and requests are made without."""
        if callable(self._token_source):
            return concurrency.call(self._token_source)
        return str(self._token_source)

    def problem(self, response: "httpx.Response") -> errors.Problem:
        """The error for an answer that is not one of success."""
        request = f"{response.request.method} {response.request.url.path}"
        try:
            members = msgspec.json.decode(response.content, type=dict[str, Any])
        except msgspec.MsgspecError:
            members = {"title": response.reason_phrase, "detail": response.text[:500]}
        wait_s = retry_after_s(response.headers.get("Retry-After"))
        return errors.problem(response.status_code, members, request=request, retry_after_s=wait_s)

    def _timeout_of(self, idle_s: float) -> Mapping[str, float | None]:
        import httpx  # noqa: PLC0415 - see __init__

        return httpx.Timeout(self.timeout_s, read=idle_s).as_dict()

    def _timeout_until(self, deadline_s: float) -> Mapping[str, float | None]:
        import httpx  # noqa: PLC0415 - see __init__

        left_s = max(deadline_s - time.monotonic(), TIMEOUT_MIN_S)
        return httpx.Timeout(min(left_s, self.timeout_s)).as_dict()

    def _retrying(
        self,
        again: bool,  # noqa: FBT001
        stop: Callable[[Any], bool] | None,
        sleep: Callable[[float], Any],
    ) -> "Retrying":
        from tenacity import Retrying, retry_if_exception, stop_after_attempt  # noqa: PLC0415 - as httpx
        from tenacity import wait_exponential_jitter as backoff  # noqa: PLC0415

        usual = backoff(multiplier=WAIT_FIRST_S, max=WAIT_MAX_S, jitter=WAIT_FIRST_S)

        def wait_s(state: Any) -> float:
            asked = getattr(state.outcome.exception(), "retry_after_s", None)
            return min(asked, RETRY_AFTER_MAX_S) if asked is not None else usual(state)

        return Retrying(
            retry=retry_if_exception(lambda ex: may_help(ex, again=again)),
            stop=stop or stop_after_attempt(self.attempts),
            wait=wait_s,
            sleep=sleep,
            reraise=True,
        )


def decode(response: "httpx.Response", kind: type[T]) -> T:
    """The JSON of an answer; raises UnexpectedAnswer."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as ex:
        raise errors.UnexpectedAnswer(
            f"{response.request.method} {response.request.url.path} did not answer as this API does: {ex}"
        ) from ex


def _read_bounded(response: "httpx.Response") -> None:
    """Read the text of a problem, and no more than a problem has."""
    pieces, size = [], 0
    for piece in response.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > PROBLEM_BYTES_MAX:
            break
    response._content = b"".join(pieces)[:PROBLEM_BYTES_MAX]  # noqa: SLF001 - what `read` sets, without a limit


def _connection_error(ex: "httpx.TransportError", url: str) -> errors.ConnectionFailed:
    import httpx  # noqa: PLC0415 - see Transport

    sent = not isinstance(ex, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    kind = errors.TimedOut if isinstance(ex, httpx.TimeoutException) else errors.ConnectionFailed
    return kind(f"{url} does not answer: {str(ex) or type(ex).__name__}", sent=sent)


def _is_over(deadline_s: float | None, after_s: float = 0.0) -> bool:
    return deadline_s is not None and time.monotonic() + after_s >= deadline_s


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@lru_cache(maxsize=URLS_MAX)
def _parsed(url: str) -> "httpx.URL":
    import httpx  # noqa: PLC0415 - see Transport

    return httpx.URL(url)


def _proxy_for(url: SplitResult) -> str | None:
    """The proxy that the environment names (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`)."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - as httpx

    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _trusted(ca_certificate: str | Path | None) -> "ssl.SSLContext":
    import ssl  # noqa: PLC0415 - as httpx

    try:
        trusted = ssl.create_default_context(cafile=None if ca_certificate is None else str(ca_certificate))
    except OSError as ex:
        raise ValueError(f"The certificate {ca_certificate} can't be used: {ex.strerror or ex}") from ex
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted


def trace_headers() -> dict[str, str]:
    """The trace context of OpenTelemetry, where the application uses it."""
    carrier: dict[str, str] = {}
    if (propagate := sys.modules.get("opentelemetry.propagate")) is not None:
        propagate.inject(carrier)
    return carrier
