"""Hash chain over the chunks of a partition: its head in the internal log ties the events to the log's checkpoints.

The hash of a chunk is SHA-256 over the hash of the chunk before it (32 zero bytes for the first), the position of its
first event, its time of recording and its number of events (each 8 bytes, little endian), and the digest of its
content. That digest is SHA-256 over one of these:

- a zero byte, the lengths of the events' JSON and of the headers (8 bytes each), the ends of the events, the JSON, the
  headers, as they are stored;
- if events of the chunk have compaction keys: a one, and for each event the SHA-256 of the length of its headers
  (8 bytes), its headers and its JSON. Compaction keeps the digests of the events that it removes, so that the chain
  still covers the events that are left.
"""

import struct
from collections.abc import Iterable
from hashlib import sha256

import msgspec

from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import COMPACTED, NO_HEADERS


GENESIS = bytes(32)
"""The hash before the first chunk."""

DIGEST_BYTES = 32

_POSITION = struct.Struct("<qqq")
_LENGTHS = struct.Struct("<qq")
_LENGTH = struct.Struct("<q")
_encode_headers = msgspec.msgpack.Encoder().encode


def link(previous: bytes, chunk: Chunk, content: bytes) -> bytes:
    """Return the hash of a chunk.

    Args:
        previous: the hash of the chunk before it.
        chunk: the chunk.
        content: the digest of its content when it was appended.
    """
    return sha256(previous + _POSITION.pack(chunk.first, chunk.recorded_at_ms, len(chunk.ends)) + content).digest()


def has_keys(chunk: Chunk) -> bool:
    """Whether events of a chunk have a compaction key, or had one."""
    return chunk.headers is not None and any(each.key is not None for each in chunk.headers)


def content_digest(chunk: Chunk, ends: bytes, headers: bytes, kept: bytes = b"") -> bytes:
    """Return the digest of a chunk's content when it was appended.

    Args:
        chunk: as it is now.
        ends: its ends, as they are stored.
        headers: its headers, as they are stored.
        kept: what `kept_digests` returned at the last compaction; empty before the first.

    Raises:
        ValueError: what was kept does not fit the chunk.
    """
    if not has_keys(chunk):
        lengths = _LENGTHS.pack(len(chunk.data), len(headers))
        return sha256(b"".join((b"\0", lengths, ends, chunk.data, headers))).digest()
    if len(kept) == 1 + DIGEST_BYTES:
        if all(each == COMPACTED for each in chunk.headers or ()):
            return kept[1:]
        raise ValueError("events are there that compaction had removed")
    return sha256(b"\1" + b"".join(_event_digests(chunk, kept))).digest()


def digests_fit(chunk: Chunk, kept: bytes) -> bool:
    """Whether what is stored beside a chunk, whose hash fits, is what `kept_digests` returned."""
    if not kept or not has_keys(chunk):
        return not kept
    # Those of events that are left are computed again: nothing else looks at them.
    if len(kept) == 1 + DIGEST_BYTES:
        return kept[:1] == b"\1"
    return b"".join(_event_digests(chunk, kept)) == kept


def kept_digests(before: Chunk, kept: bytes, after: Chunk) -> bytes:
    """Return what is stored beside a chunk when compaction removes events from it.

    Args:
        before: the chunk.
        kept: what was stored beside it so far.
        after: the chunk without the events that are removed.
    """
    if len(kept) == 1 + DIGEST_BYTES:
        return kept
    digests = b"".join(_event_digests(before, kept))
    if all(each == COMPACTED for each in after.headers or ()):
        return b"\1" + sha256(b"\1" + digests).digest()
    return digests


def _event_digests(chunk: Chunk, kept: bytes) -> Iterable[bytes]:
    if kept and len(kept) != DIGEST_BYTES * len(chunk.ends):
        raise ValueError("the digests of the events are not as many as the events")
    begin = 0
    for index, (end, each) in enumerate(zip(chunk.ends, chunk.headers or (), strict=True)):
        if kept and each == COMPACTED:
            yield kept[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)]
        else:
            headers = b"" if each == NO_HEADERS else _encode_headers(each)
            yield sha256(b"".join((_LENGTH.pack(len(headers)), headers, chunk.data[begin:end]))).digest()
        begin = end + 1
