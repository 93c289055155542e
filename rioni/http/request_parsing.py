"""Parses the common parts of requests: subject, body and parameters."""

import re
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any
from uuid import uuid4

import falcon
from gunicorn.http.errors import ParseException

from rioni.commands.context import Context
from rioni.domain.access.authorization import Attribute, Subject
from rioni.domain.errors import Malformed, RequestTimeout, TooLarge
from rioni.domain.events import Origin
from rioni.domain.ports.notifier import LOG_KEY
from rioni.domain.timestamps import rfc3339
from rioni.http.bodies.budget import hold
from rioni.http.connection.framing import pieces
from rioni.http.dependencies import Dependencies
from rioni.http.middleware.authentication import caller_of


JSON_BYTES_MAX = 262_144
DEFINITION_BYTES_MAX = 2_000_000
"""Of an event type: a schema of the largest size fits, whatever way its characters are escaped."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
"""Digits that fit every database; Python's own conversion also accepts other scripts, and fails on long numbers."""


def subject_of(req: falcon.Request) -> Subject:
    """The subject of the request; anonymous while authentication is off."""
    return caller_of(req).subject


def context_of(req: falcon.Request, services: Dependencies) -> Context:
    """The context of a command of this request: subject and time."""
    subject = subject_of(req)
    origin = Origin(
        actor=subject.name,
        client=req.remote_addr or "",
        flow_id=req.context.flow_id,
        command_id=str(uuid4()),
        recorded_at=rfc3339(services.clock.now_ms()),
    )
    return Context(subject=subject, origin=origin)


def dispatch(command: Any, req: falcon.Request, services: Dependencies) -> Any:
    """Run a command for the request, and notify all processes that the log has grown."""
    result = services.bus.dispatch(command, context_of(req, services))
    services.signals.notify(LOG_KEY)
    return result


def read_json(req: falcon.Request, bytes_max: int = JSON_BYTES_MAX) -> bytes:
    """The body of a request that is no batch of events; raises as `read_body` does."""
    return read_body(req, bytes_max)


def read_body(req: falcon.Request, bytes_max: int) -> bytes:
    """The whole body, inflated if it is compressed.

    Raises:
        TooLarge: it is longer than `bytes_max`, before or after inflating; the rest is not read.
        RequestTimeout: it is received too slowly.
        Malformed: it is not in the form that Content-Encoding names.
        TooManyStreams, Overloaded: the client, or all of them, send too much at once.
    """
    if (req.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    encoding = (req.get_header("Content-Encoding") or "").lower()
    read = _pieces(req, bytes_max)
    if encoding and (bodies := getattr(req.context, "bodies", None)) is not None:
        read = bodies.inflater.inflated(read, encoding, partial(hold, req))
    body, size = BytesIO(), 0
    for piece in read:
        if size + len(piece) > bytes_max:
            raise _too_large(bytes_max)
        hold(req, len(piece))
        size += body.write(piece)
    # PERF: this copies nothing; copying 50 MB could block the process for 100 ms.
    return body.getvalue()


def _pieces(req: falcon.Request, bytes_max: int) -> Iterator[bytes]:
    # Falcon takes a body without a length for an empty one, although gunicorn knows where its chunks end.
    stream = req.env["wsgi.input"] if req.env.get("wsgi.input_terminated") else req.bounded_stream
    size = 0
    try:
        for piece in pieces(stream.read):
            # Counted as they come, too: compressed ones may inflate to nothing, and those without a length go on.
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            yield piece
    except TimeoutError as ex:
        raise RequestTimeout("Timed out reading the request body; send smaller or compressed batches") from ex
    except (OSError, ParseException) as ex:
        raise Malformed(f"The request body is truncated or malformed: {ex}") from ex


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


def listed(req: falcon.Request, name: str) -> list[str]:
    """The values of a parameter that may be given several times, and each time hold a list separated by commas."""
    return [part for text in req.get_param_as_list(name) or () for part in text.split(",") if part or not text]


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
