"""Events as JSON: whatever form the application has them in, with the metadata that the API needs."""

import gzip
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from rioni.client import values


CATEGORY_WITHOUT_METADATA = "undefined"
COMPRESSED_BYTES_MIN = 1_000
"""Smaller bodies are sent as they are."""
COMPRESSIONS = ("gzip", "zstd")


_NOT_FINITE = (b"null", b"NaN", b"Infinity")
"""The texts that Pydantic writes for numbers that JSON does not have."""


class _WithMetadata(msgspec.Struct):
    metadata: msgspec.Raw | None = None


_METADATA = msgspec.json.Decoder(_WithMetadata)


def metadata(**members: Any) -> dict[str, Any]:
    """Metadata of a new event: a random `eid`, the present time as `occurred_at`, and further members."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"eid": str(uuid4()), "occurred_at": now, **members}


def encode_event(event: Any, *, add_metadata: bool) -> bytes:
    """The JSON of an event.

    Args:
        event: a mapping, a msgspec struct, a dataclass, an attrs class, a Pydantic model, or JSON as bytes or text.
        add_metadata: whether an event without a member `metadata` gets one.

    Raises:
        TypeError: the event can't be written as a JSON object; the text names the path of the value that can't.
        ValueError: a value of the event has no form in JSON, such as NaN; the text names its path.
    """
    if isinstance(event, dict):
        values.check(event)
        # PERF: 1.3 µs, compared with 1.6 µs for adding metadata to encoded events.
        if add_metadata and "metadata" not in event:
            event = {**event, "metadata": _new_metadata()}
        return values.encode(event)
    if isinstance(event, bytes):
        encoded = event
    elif isinstance(event, str):
        encoded = values.encode_text(event)
    elif hasattr(event, "model_dump_json"):
        encoded = event.model_dump_json().encode()
        if any(word in encoded for word in _NOT_FINITE):
            values.check_finite(event.model_dump())
    else:
        values.check(event)
        encoded = values.encode(event)
    encoded = encoded.strip()
    if not (encoded.startswith(b"{") and encoded.endswith(b"}")):
        raise TypeError(f"An event is a JSON object; this is none: {encoded[:80]!r}")
    if not add_metadata or _has_metadata(encoded):
        return encoded
    members = encoded[:-1].rstrip()
    return (
        members
        + (b',"metadata":' if len(members) > 1 else b'"metadata":')
        + msgspec.json.encode(_new_metadata())
        + b"}"
    )


def encode_events(events: Iterable[Any], *, add_metadata: bool) -> Sequence[bytes]:
    """The JSON of each event; raises as `encode_event`, with the number of the event, from 1."""
    encoded: list[bytes] = []
    for event in events:
        try:
            encoded.append(encode_event(event, add_metadata=add_metadata))
        except (TypeError, ValueError) as ex:
            raise type(ex)(f"Event {len(encoded) + 1}: {ex}") from ex
    return encoded


def _new_metadata() -> dict[str, Any]:
    """The metadata that `metadata` makes, in the form that msgspec encodes. PERF: 0.9 µs instead of 4 µs."""
    digits = os.urandom(15).hex()
    eid = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-{digits[18:]}"
    return {"eid": eid, "occurred_at": datetime.now(UTC)}


def encode_batch(events: Iterable[bytes]) -> bytes:
    """The body of a batch."""
    return b"[" + b",".join(events) + b"]"


def compressor(compression: str | None) -> Callable[[bytes], bytes] | None:
    """Return a function that compresses bodies; None if `compression` is None.

    Raises:
        ValueError: there is no such compression, or its package is not installed.
    """
    if compression is None:
        return None
    if compression == "gzip":
        return lambda body: gzip.compress(body, compresslevel=6, mtime=0)
    if compression == "zstd":
        try:
            import zstandard  # noqa: PLC0415 - only those who ask for it need it
        except ImportError as ex:
            raise ValueError("zstd needs the package zstandard: pip install zstandard") from ex
        return lambda body: zstandard.ZstdCompressor().compress(body)
    raise ValueError(f"{compression!r} is not a compression; there are {', '.join(COMPRESSIONS)}")


def _has_metadata(encoded: bytes) -> bool:
    # Bytes that do not contain the word can't have the member.
    if b'"metadata"' not in encoded:
        return False
    try:
        return _METADATA.decode(encoded).metadata is not None
    except msgspec.MsgspecError:
        # The broker reports what is wrong with it.
        return True
