"""What every resource needs of a request: who asks, its body, and its parameters."""

import zlib
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import falcon
import zstandard

from rioni.commands.context import Context
from rioni.domain.authorization import UNAUTHENTICATED, Attribute, Subject
from rioni.domain.errors import Malformed, TooLarge
from rioni.domain.events import Origin
from rioni.http.services import LOG_KEY, Services
from rioni.http.timestamps import rfc3339


READ_BYTES = 65_536


def subject_of(_req: falcon.Request) -> Subject:
    """Who makes the request; while authentication is off, nobody in particular."""
    return UNAUTHENTICATED


def context_of(req: falcon.Request, services: Services) -> Context:
    """In whose name, and when, a command of this request runs."""
    subject = subject_of(req)
    origin = Origin(
        actor=subject.name,
        client=req.remote_addr or "",
        flow_id=req.context.flow_id,
        command_id=str(uuid4()),
        recorded_at=rfc3339(services.clock.now_ms()),
    )
    return Context(subject=subject, origin=origin)


def dispatch(command: Any, req: falcon.Request, services: Services) -> Any:
    """Run a command in the name of the request, and tell every process that the log has grown."""
    result = services.offload(services.bus.dispatch, command, context_of(req, services))
    services.signals.notify(LOG_KEY)
    return result


def read_body(req: falcon.Request, bytes_max: int) -> bytes:
    """The whole body, inflated if it is compressed.

    Raises:
        TooLarge: it is longer than `bytes_max`, before or after inflating; the rest is not read.
        Malformed: it is not in the form that Content-Encoding names.
    """
    if (req.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    encoding = (req.get_header("Content-Encoding") or "").lower()
    pieces = _pieces(req)
    if encoding == "gzip":
        pieces = _gunzip(pieces, bytes_max)
    elif encoding == "zstd":
        pieces = _unzstd(pieces)
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
    return bytes(body)


def _pieces(req: falcon.Request) -> Iterator[bytes]:
    try:
        while piece := req.bounded_stream.read(READ_BYTES):
            yield piece
    except OSError as ex:
        raise Malformed(f"The body ended before it was complete: {ex}") from ex


def _gunzip(pieces: Iterator[bytes], bytes_max: int) -> Iterator[bytes]:
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        for piece in pieces:
            yield inflate.decompress(piece, bytes_max + 1)
    except zlib.error as ex:
        raise Malformed("Not in GZIP format") from ex
    if not inflate.eof and not inflate.unconsumed_tail:
        raise Malformed("Not in GZIP format")


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    # PERF: pieces of 4 kB keep one step from inflating more than a few megabytes.
    inflate = zstandard.ZstdDecompressor(max_window_size=2**23).decompressobj()
    try:
        for piece in pieces:
            for start in range(0, len(piece), 4_096):
                yield inflate.decompress(piece[start : start + 4_096])
    except zstandard.ZstdError as ex:
        raise Malformed("Not in ZSTD format") from ex


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"The body is larger than {bytes_max} bytes; send fewer events in one request")


def integer(req: falcon.Request, name: str, default: int) -> int:
    """An integer of the query string.

    Raises:
        Malformed: it is not one.
    """
    text = req.get_param(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError as ex:
        raise Malformed(f"{name}: '{text}' is not an integer") from ex


def attribute(req: falcon.Request, name: str) -> Attribute | None:
    """An authorization attribute of the query string, `data_type:value`.

    Raises:
        Malformed: it does not have exactly one colon.
    """
    text = req.get_param(name)
    if text is None:
        return None
    data_type, colon, value = text.partition(":")
    if not colon or ":" in value:
        raise Malformed(f"{name}: '{text}' Authorization format is incorrect. Should be data_type:value")
    return Attribute(data_type, value)
