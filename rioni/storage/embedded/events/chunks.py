"""Chunks of events as database rows, with checksums, and the hash chain over the chunks of a partition."""

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import accumulate, islice
from typing import NamedTuple

import msgspec

from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import COMPACTED, NO_HEADERS, Headers, headers_bytes


# Hash chain over the chunks of a partition: its head in the internal log ties the events to the log's checkpoints.
#
# The hash of a chunk is SHA-256 over the hash of the chunk before it (32 zero bytes for the first), the position of its
# first event, its time of recording and its number of events (each 8 bytes, little endian), and the digest of its
# content. That digest is SHA-256 over one of these:
#
# - a zero byte, the lengths of the events' JSON and of the headers (8 bytes each), the ends of the events, the JSON,
#   the headers, as they are stored;
# - if events of the chunk have compaction keys: a one, and for each event the SHA-256 of the length of its headers (8
#   bytes), its headers and its JSON. Compaction keeps the digests of the events that it removes, so that the chain
#   still covers the events that are left.

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
        chunk: the chunk as it is now.
        ends: its ends, as they are stored.
        headers: its headers, as they are stored.
        kept: the bytes that `kept_digests` returned at the last compaction; empty before the first.

    Raises:
        ValueError: the kept bytes do not fit the chunk.
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
    """Whether the bytes stored with a chunk, whose hash fits, are those that `kept_digests` returned."""
    if not kept or not has_keys(chunk):
        return not kept
    # The digests of the events that are left are computed again: nothing else checks the stored ones.
    if len(kept) == 1 + DIGEST_BYTES:
        return kept[:1] == b"\1"
    return b"".join(_event_digests(chunk, kept)) == kept


def kept_digests(before: Chunk, kept: bytes, after: Chunk) -> bytes:
    """Return the bytes to store with a chunk when compaction removes events from it.

    Args:
        before: the chunk.
        kept: the bytes stored with it so far.
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


# --- Converts chunks of events to database rows with checksums, and back ---

CHUNK_BYTES = 65_536
"""Target length of chunks: longer batches are split, shorter ones of one transaction are joined. An event is never
split."""

POSITION_BITS = 43
POSITION_MAX = 2**POSITION_BITS - 1
PARTITION_ID_MAX = 2 ** (63 - POSITION_BITS) - 2
"""Keys have 63 bits: 20 for the partition's id, 43 for the position, which at 100,000 events a second lasts for 2.8
years. A full partition is continued in a new timeline."""

_CHECKED = struct.Struct("<qqI")

_decode_headers = msgspec.msgpack.Decoder(list[Headers]).decode

Row = tuple[int, int, int, int, bytes, bytes, bytes]
CHUNK_COLUMNS = "key, recorded_at_ms, count, checksum, ends, data, headers"

ChainedRow = tuple[int, int, int, int, bytes, bytes, bytes, bytes, bytes]
"""A row with the hash of the chunk, and the digests of events that compaction has removed; see `link`."""
CHAINED_COLUMNS = f"{CHUNK_COLUMNS}, hash, digests"


class Damage(NamedTuple):
    """Damage found in the stored events, and its location; the topic is empty if the file itself is damaged."""

    topic: str
    partition: int
    position: int
    what: str


class DamagedEvents(Unavailable):
    """Stored events differ from what was written; they are never served."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        where = (
            f"topic {damage.topic}, partition {damage.partition}, position {damage.position}: " if damage.topic else ""
        )
        super().__init__(
            f"The stored events are damaged: {where}{damage.what}. Restore the data directory from a backup, or move "
            "cursors beyond the damage."
        )


class EventRun(NamedTuple):
    """A run of events of one batch and one partition, of at most about `CHUNK_BYTES`."""

    data: bytes
    """The events' JSON, joined by commas."""
    lengths: list[int]
    """The length of each event in bytes, including its comma."""
    headers: Sequence[Headers] | None = None
    """The headers stored with each event; None if no event has any."""

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.data) + headers_bytes(self.headers)


def chunk_key(partition_id: int, position: int) -> int:
    """Return the key of a row: a partition is a contiguous range of keys, in the order of positions."""
    return partition_id << POSITION_BITS | position


def split(events: Sequence[bytes], headers: Sequence[Headers] | None = None) -> list[EventRun]:
    """Split a batch into pieces.

    Args:
        events: the batch.
        headers: stored with each event.
    """
    lengths = [len(event) + 1 for event in events]
    if sum(lengths) <= CHUNK_BYTES:
        return [_piece(events, lengths, headers, 0, len(events))]
    pieces, begin, size = [], 0, 0
    for index, length in enumerate(lengths):
        if size and size + length > CHUNK_BYTES:
            pieces.append(_piece(events, lengths, headers, begin, index))
            begin, size = index, 0
        size += length
    pieces.append(_piece(events, lengths, headers, begin, len(events)))
    return pieces


def _piece(
    events: Sequence[bytes], lengths: list[int], headers: Sequence[Headers] | None, begin: int, end: int
) -> EventRun:
    if headers is None:
        return EventRun(b",".join(events[begin:end]), lengths[begin:end])
    some = headers[begin:end]
    return EventRun(
        b",".join(events[begin:end]), lengths[begin:end], some if any(each != NO_HEADERS for each in some) else None
    )


def join(pieces: Iterable[EventRun], first: int, recorded_at_ms: int) -> Iterator[Chunk]:
    """Join consecutive pieces to chunks.

    Args:
        pieces: in their order.
        first: the position of the first event.
        recorded_at_ms: when all of them were recorded.
    """
    joined: list[EventRun] = []
    size = 0
    for piece in pieces:
        if joined and size + len(piece.data) > CHUNK_BYTES:
            yield (chunk := _chunk(joined, first, recorded_at_ms))
            first = chunk.next
            joined, size = [], 0
        joined.append(piece)
        size += len(piece.data) + 1
    yield _chunk(joined, first, recorded_at_ms)


def _chunk(pieces: Sequence[EventRun], first: int, recorded_at_ms: int) -> Chunk:
    lengths = pieces[0].lengths if len(pieces) == 1 else [each for piece in pieces for each in piece.lengths]
    # An event ends at the sum of the lengths up to it, less its own comma.
    ends = array("I", islice(accumulate(lengths, initial=-1), 1, None))
    headers = None
    if any(piece.headers for piece in pieces):
        headers = [each for piece in pieces for each in piece.headers or [NO_HEADERS] * len(piece.lengths)]
    return Chunk(first, recorded_at_ms, b",".join([piece.data for piece in pieces]), ends, headers)


def encode(partition_id: int, chunk: Chunk) -> Row:
    """Convert a chunk to a row without its place in the hash chain."""
    assert isinstance(chunk.ends, array)
    key, ends = chunk_key(partition_id, chunk.first), _little_endian(chunk.ends).tobytes()
    headers = _encode_headers(chunk.headers) if chunk.headers else b""
    checksum = _checksum(key, chunk.recorded_at_ms, ends, chunk.data, headers)
    return key, chunk.recorded_at_ms, len(chunk.ends), checksum, ends, chunk.data, headers


def encode_chain(chunks: Iterable[tuple[int, Chunk]], heads: dict[int, bytes]) -> Iterator[ChainedRow]:
    """Convert new chunks, by partition id, to rows in their order.

    Args:
        chunks: the chunks to append.
        heads: the hash of the last chunk of each partition; updated. None before the first chunk.
    """
    for partition_id, chunk in chunks:
        row = encode(partition_id, chunk)
        heads[partition_id] = last = link(
            heads.get(partition_id, GENESIS), chunk, content_digest(chunk, row[4], row[6])
        )
        yield *row, last, b""


def chain_hash(row: ChainedRow, previous: bytes) -> bytes:
    """Return the hash of a chunk that follows a chunk with the hash `previous`.

    Raises:
        ValueError: the row differs from what was written.
    """
    chunk = decode(row[:7])
    return link(previous, chunk, content_digest(chunk, row[4], row[6], row[8]))


def decode(row: Row) -> Chunk:
    """Convert a row to a chunk.

    Raises:
        ValueError: the row differs from what was written.
    """
    key, recorded_at_ms, count, checksum, ends_data, data, headers_data = row
    try:
        if checksum != _checksum(key, recorded_at_ms, ends_data, data, headers_data) or count * 4 != len(ends_data):
            raise ValueError("the checksum is wrong")
    except (TypeError, struct.error) as ex:
        raise ValueError("a column has the wrong type") from ex
    ends = array("I")
    ends.frombytes(ends_data)
    headers = _decode_headers(headers_data) if headers_data else None
    return Chunk(key & POSITION_MAX, recorded_at_ms, data, _little_endian(ends), headers)


def _checksum(key: int, recorded_at_ms: int, ends: bytes, data: bytes, headers: bytes) -> int:
    head = zlib.crc32(_CHECKED.pack(key, recorded_at_ms, len(ends) // 4))
    checksum = zlib.crc32(data, zlib.crc32(ends, head))
    return zlib.crc32(headers, checksum) if headers else checksum


def _little_endian(ends: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        return ends
    swapped = array("I", ends)
    swapped.byteswap()
    return swapped
