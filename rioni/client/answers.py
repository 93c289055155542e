"""Answers of httpx as values or errors, and parts of its requests; all of it does no I/O."""

import sys
from collections.abc import Hashable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from rioni.client import errors, values
from rioni.client.retries import retry_after_s
from rioni.wire.events import Batch


if TYPE_CHECKING:
    import ssl

    import httpx


DECODERS_MAX = 200
URLS_MAX = 1_000
"""Addresses that are not parsed again."""

T = TypeVar("T")


def decode(response: "httpx.Response", kind: type[T]) -> T:
    """The JSON of an answer; raises UnexpectedAnswer."""
    try:
        found: T = _decoder(cast("Hashable", kind)).decode(response.content)
    except msgspec.MsgspecError as ex:
        raise errors.UnexpectedAnswer(
            f"{response.request.method} {response.request.url.path} did not answer as this API does: {ex}"
        ) from ex
    return found


_BATCH = msgspec.json.Decoder(Batch)


def batch(line: bytes) -> Batch:
    """A batch from a line of a stream; raises UnexpectedAnswer."""
    try:
        return _BATCH.decode(line)
    except msgspec.MsgspecError as ex:
        raise errors.UnexpectedAnswer(f"The stream sent something that is not a batch ({ex}): {line[:100]!r}") from ex


@lru_cache(maxsize=DECODERS_MAX)
def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind, float_hook=values.number)


def problem(response: "httpx.Response", route: str, text: str | None = None) -> errors.Problem:
    """The error for an answer that is not one of success, which came on a route such as ` through the proxy …`.

    Args:
        response: the answer.
        route: how the request came to the broker.
        text: the body, if it was read as a stream.
    """
    request = f"{response.request.method} {response.request.url.path}"
    members = errors.members_of(response.text if text is None else text, f"{response.reason_phrase}{route}")
    wait_s = retry_after_s(response.headers.get("Retry-After"))
    return errors.problem(response.status_code, members, request=request, retry_after_s=wait_s)


def connection_error(ex: "httpx.TransportError", asked: str) -> errors.ConnectionFailed:
    """The error for a request without an answer."""
    import httpx  # noqa: PLC0415 - as `Transport` says

    unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.LocalProtocolError)
    kind = errors.TimedOut if isinstance(ex, httpx.TimeoutException) else errors.ConnectionFailed
    text = f"{asked} does not answer: {str(ex) or type(ex).__name__}"
    return kind(text, sent=not isinstance(ex, unsent), temporary=not _is_lasting(ex))


def _is_lasting(ex: "httpx.TransportError") -> bool:
    """Whether another attempt would fail in the same way."""
    import ssl  # noqa: PLC0415 - as httpx

    import httpx  # noqa: PLC0415 - as `Transport` says

    cause: BaseException | None = ex
    while cause is not None and not isinstance(cause, (ssl.SSLCertVerificationError, UnicodeError)):
        cause = cause.__cause__
    return cause is not None or isinstance(ex, (httpx.LocalProtocolError, httpx.UnsupportedProtocol))


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers whose names are in small letters, so that each is there once."""
    return {name.lower(): value for name, value in headers.items()}


@lru_cache(maxsize=URLS_MAX)
def parsed(url: str) -> "httpx.URL":
    """The address of a request."""
    import httpx  # noqa: PLC0415 - as `Transport` says

    return httpx.URL(url)


def trusted(ca_certificate: str | Path | None) -> "ssl.SSLContext":
    """The authorities to trust; raises ValueError if the file can't be used."""
    import ssl  # noqa: PLC0415 - as httpx

    try:
        context = ssl.create_default_context(cafile=None if ca_certificate is None else str(ca_certificate))
    except OSError as ex:
        raise ValueError(f"The certificate {ca_certificate} can't be used: {ex.strerror or ex}") from ex
    context.set_alpn_protocols(["http/1.1"])
    return context


def trace_headers() -> dict[str, str]:
    """The trace context of OpenTelemetry, if the application uses it."""
    carrier: dict[str, str] = {}
    if (propagate := sys.modules.get("opentelemetry.propagate")) is not None:
        propagate.inject(carrier)
    return carrier
