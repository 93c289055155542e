"""What every resource needs of a request: who asks, its body, and its parameters."""

import re
import time
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from uuid import uuid4

import falcon
import zstandard
from gunicorn.http.errors import ParseException

from rioni.commands.context import Context
from rioni.domain.authorization import Attribute, Subject
from rioni.domain.errors import Malformed, TooLarge, TooSlow
from rioni.domain.events import Origin
from rioni.domain.ports import LOG_KEY
from rioni.domain.timestamps import rfc3339
from rioni.http.authentication import caller_of
from rioni.http.services import Services


READ_BYTES = 65_536
JSON_BYTES_MAX = 262_144
DEFINITION_BYTES_MAX = 2_000_000
"""Of an event type: a schema of the largest size fits, whatever way its characters are escaped."""
STEP_BYTES = 1_000_000
"""PERF: inflating so much takes 2 ms; then others have their turn."""
BREATH_S = 0.001
"""Sleeping for no time at all would let those run who are ready, and nobody whose time has come."""
ZSTD_STEP_BYTES = 32
"""PERF: four bytes of Zstandard can become 128 kB, so these become 1 MB at most."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
"""What every database has room for; Python's own conversion also takes other scripts, and gives up on long ones."""


def subject_of(req: falcon.Request) -> Subject:
    """Who makes the request; while authentication is off, nobody in particular."""
    return caller_of(req).subject


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


def read_json(req: falcon.Request, bytes_max: int = JSON_BYTES_MAX) -> bytes:
    """The body of a request that is no batch of events; raises as `read_body` does."""
    return read_body(req, bytes_max)


def read_body(req: falcon.Request, bytes_max: int) -> bytes:
    """The whole body, inflated if it is compressed.

    Raises:
        TooLarge: it is longer than `bytes_max`, before or after inflating; the rest is not read.
        TooSlow: it takes too long to come.
        Malformed: it is not in the form that Content-Encoding names.
    """
    if (req.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    encoding = (req.get_header("Content-Encoding") or "").lower()
    pieces = _pieces(req)
    if encoding == "gzip":
        pieces = _gunzip(pieces)
    elif encoding == "zstd":
        pieces = _unzstd(pieces)
    body, size, step_ends = BytesIO(), 0, STEP_BYTES
    for piece in pieces:
        if size + len(piece) > bytes_max:
            raise _too_large(bytes_max)
        size += body.write(piece)
        if size > step_ends:
            step_ends = size + STEP_BYTES
            time.sleep(BREATH_S)
    # PERF: this copies nothing; for 50 MB that could take 100 ms, in which nobody else has a turn.
    return body.getvalue()


def _pieces(req: falcon.Request) -> Iterator[bytes]:
    # Falcon takes a body without a length for an empty one, although gunicorn knows where its chunks end.
    stream = req.env["wsgi.input"] if req.env.get("wsgi.input_terminated") else req.bounded_stream
    try:
        while piece := stream.read(READ_BYTES):
            yield piece
    except TimeoutError as ex:
        raise TooSlow("The body takes too long to come; send less at a time, or send it compressed") from ex
    except (OSError, ParseException) as ex:
        raise Malformed(f"The body can't be read to its end: {ex}") from ex


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        for piece in pieces:
            yield inflate.decompress(piece, STEP_BYTES)
            while inflate.unconsumed_tail:
                yield inflate.decompress(inflate.unconsumed_tail, STEP_BYTES)
    except zlib.error as ex:
        raise Malformed("Not in GZIP format") from ex
    if not inflate.eof:
        raise Malformed("Not in GZIP format")


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inflate = zstandard.ZstdDecompressor(max_window_size=2**23).decompressobj()
    try:
        for piece in pieces:
            for start in range(0, len(piece), ZSTD_STEP_BYTES):
                yield inflate.decompress(piece[start : start + ZSTD_STEP_BYTES])
    except zstandard.ZstdError as ex:
        raise Malformed("Not in ZSTD format") from ex
    if not inflate.eof:
        raise Malformed("Not in ZSTD format")


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"The body is larger than {bytes_max} bytes; send less in one request")


def media_type(header: str | None) -> str:
    """The media type that a header names, without its parameters."""
    return (header or "").partition(";")[0].strip().lower()


def integer(req: falcon.Request, name: str, default: int) -> int:
    """An integer of the query string.

    Raises:
        Malformed: it is not one.
    """
    text = req.get_param(name)
    if text is None:
        return default
    if _INTEGER.fullmatch(text) is None:
        raise Malformed(f"{name}: '{text}' is not an integer")
    return int(text)


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
