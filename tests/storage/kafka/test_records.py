from rioni.domain.publishing.headers import COMPACTED, NO_HEADERS, Headers
from rioni.storage.kafka.records import CHUNK_BYTES, GAP_POSITIONS_MAX, Record, chunks_of, fitting


def record(offset, value=b"{}", at_ms=1, headers=NO_HEADERS):
    return Record(offset, at_ms, value, headers)


def test_only_records_with_the_same_timestamp_share_a_chunk():
    chunks = chunks_of([record(3), record(4), record(5, at_ms=2)], 3, 6)
    assert [(chunk.first, chunk.next, chunk.recorded_at_ms) for chunk in chunks] == [(3, 5, 1), (5, 6, 2)]
    assert chunks[0].data == b"{},{}"


def test_a_chunk_ends_before_it_is_too_long():
    half = b"x" * (CHUNK_BYTES // 2)
    assert [chunk.first for chunk in chunks_of([record(number, half) for number in range(4)], 0, 4)] == [0, 1, 2, 3]


def test_positions_without_a_record_are_read_as_removed_events():
    (chunk,) = chunks_of([record(2), record(4, headers=Headers(key="a"))], 1, 6)
    assert [chunk.cut(position, position + 1) for position in range(1, 6)] == [b"", b"{}", b"", b"{}", b""]
    assert chunk.headers == [COMPACTED, NO_HEADERS, COMPACTED, Headers(key="a"), COMPACTED]


def test_a_gap_without_records_is_read_as_removed_events_only():
    (chunk,) = chunks_of([], 5, 8)
    assert (chunk.first, chunk.next, chunk.headers) == (5, 8, [COMPACTED] * 3)


def test_of_a_long_gap_only_the_end_is_shown_and_one_read_has_no_gap():
    far = 10 * GAP_POSITIONS_MAX
    chunks = chunks_of([record(0), record(far)], 0, far + 1)
    assert [(chunk.first, chunk.next) for chunk in chunks] == [(0, 1), (far - GAP_POSITIONS_MAX, far + 1)]
    assert fitting(chunks, 10**9) == chunks[:1]
