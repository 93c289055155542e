"""Converts events and their headers to Kafka records, and records to chunks.

Source: reference publishing#partitioning, publishing#consumer-tag.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

import msgspec
from confluent_kafka import Message

from rioni.domain.access.authorization import Attribute
from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import COMPACTED, NO_HEADERS, Headers


CHUNK_BYTES = 65_536
"""Maximum length of chunks, except those with a single event."""

GAP_POSITIONS_MAX = 10_000
"""Maximum number of positions shown for a gap without records, the last ones; readers skip the others."""

OWNER_NAME, OWNER_VALUE = "X-AuthParam-Name", "X-AuthParam-Value"
SUBSCRIPTION, AVRO = "X-Consumer-Subscription-Id", "X-Avro-Datum"
"""The headers of records; stored, so none of these names may ever change."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event."""

    offset: int
    recorded_at_ms: int
    value: bytes
    """The JSON; empty for a deletion."""
    headers: Headers


def key_of(headers: Headers) -> bytes | None:
    """Return the key of an event's record."""
    return None if headers.key is None else _encode(headers.key)


def headers_of(headers: Headers) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of an event's record."""
    found: list[tuple[str, str | bytes | None]] = []
    if headers.owner is not None:
        found += [(OWNER_NAME, _encode(headers.owner.data_type)), (OWNER_VALUE, _encode(headers.owner.value))]
    if headers.subscription_id is not None:
        found.append((SUBSCRIPTION, _encode(headers.subscription_id)))
    if headers.avro is not None:
        found.append((AVRO, headers.avro))
    return found


def record_of(message: Message) -> Record:
    """Convert a record; unknown headers are ignored."""
    key, headers = message.key(), NO_HEADERS
    if key is not None or message.headers():
        named = {name: value or b"" for name, value in message.headers() or ()}
        owner, subscription = named.get(OWNER_NAME), named.get(SUBSCRIPTION)
        headers = Headers(
            key=None if key is None else _decode(key),
            owner=None if owner is None else Attribute(_decode(owner), _decode(named.get(OWNER_VALUE, b""))),
            subscription_id=None if subscription is None else _decode(subscription),
            avro=named.get(AVRO),
        )
        # Headers of other producers are not part of the event.
        headers = NO_HEADERS if headers == NO_HEADERS else headers
    return Record(message.offset(), message.timestamp()[1], message.value() or b"", headers)


def chunks_of(records: Sequence[Record], begin: int, end: int) -> list[Chunk]:
    """Convert records to chunks.

    Positions without a record (compaction has removed it, or it only marks the end of a transaction) become removed
    events.

    Args:
        records: the records of one partition, in order.
        begin: the requested position.
        end: the position after the records found.
    """
    chunks: list[Chunk] = []
    run: list[Record] = []
    size, expected, at_ms = 0, begin, 0
    # PERF: every event passes through here, so each is processed once.
    for record in records if len(records) == end - begin else _with_gaps(records, begin, end):
        length = len(record.value)
        if run and (size + length > CHUNK_BYTES or record.offset != expected or record.recorded_at_ms != at_ms):
            chunks.append(_chunk(run))
            run, size = [], 0
        run.append(record)
        size += length + 1
        expected, at_ms = record.offset + 1, record.recorded_at_ms
    if run:
        chunks.append(_chunk(run))
    return chunks


def fitting(chunks: Iterable[Chunk], bytes_max: int) -> list[Chunk]:
    """Return the first chunk and its contiguous successors within a total number of bytes."""
    found: list[Chunk] = []
    size = 0
    for chunk in chunks:
        size += len(chunk.data)
        if found and (chunk.first != found[-1].next or size > bytes_max):
            break
        found.append(chunk)
    return found


def _with_gaps(records: Sequence[Record], begin: int, end: int) -> Iterator[Record]:
    position = begin
    recorded_at_ms = records[0].recorded_at_ms if records else 0
    for record in records:
        if record.offset != position:
            yield from _gap(position, record.offset, recorded_at_ms)
        yield record
        position, recorded_at_ms = record.offset + 1, record.recorded_at_ms
    yield from _gap(position, end, recorded_at_ms)


def _gap(begin: int, end: int, recorded_at_ms: int) -> Iterator[Record]:
    for position in range(max(begin, end - GAP_POSITIONS_MAX), end):
        yield Record(position, recorded_at_ms, b"", COMPACTED)


def _chunk(run: Sequence[Record]) -> Chunk:
    # An event ends at the sum of the lengths up to it, less its own comma.
    lengths = [len(record.value) + 1 for record in run]
    ends = array("I", islice(accumulate(lengths, initial=-1), 1, None))
    headers = [record.headers for record in run] if any(record.headers is not NO_HEADERS for record in run) else None
    return Chunk(run[0].offset, run[0].recorded_at_ms, b",".join([record.value for record in run]), ends, headers)


# Strings from JSON may contain half a surrogate pair.
def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decode(data: bytes) -> str:
    try:
        return data.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return data.decode(errors="replace")  # not written by this broker
