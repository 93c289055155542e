import gzip

import pytest
import zstandard

from rioni.domain.errors import Malformed, TooLarge, TooManyStreams
from rioni.http.bodies.reading import (
    GZIP_BYTES,
    GZIP_MEMBERS_MAX,
    INFLATED_STEP_BYTES,
    RATIO_BYTES_MIN,
    ZSTD_WINDOW_BYTES_MAX,
    Inflater,
)


def inflate(body, coding, *, piece=65_536, reserved=None):
    pieces = (body[start : start + piece] for start in range(0, len(body), piece))
    reserve = (lambda _: None) if reserved is None else reserved.append
    return list(Inflater().inflated(pieces, coding, reserve))


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_bodies_are_inflated_in_small_steps(coding):
    body = b"".join(b'{"order_id":"%d"}' % number for number in range(100_000))
    compressed = gzip.compress(body) if coding == "gzip" else zstandard.compress(body)
    pieces = inflate(compressed, coding)
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= 2 * INFLATED_STEP_BYTES


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("times", [2, 20])
def test_a_body_that_is_compressed_too_much_is_rejected_before_it_is_inflated(coding, times):
    """Reference common#content-encoding."""
    body = b"[]," * (times * RATIO_BYTES_MIN // 3)
    compressed = gzip.compress(body, 9) if coding == "gzip" else zstandard.compress(body, 19)
    sizes = []
    pieces = (compressed[start : start + 1_000] for start in range(0, len(compressed), 1_000))
    with pytest.raises(TooLarge, match="larger than 200 times"):
        sizes.extend(map(len, Inflater().inflated(pieces, coding, lambda _: None)))
    assert sum(sizes) <= RATIO_BYTES_MIN


def test_small_bodies_may_have_any_compression_ratio():
    assert b"".join(inflate(gzip.compress(b" " * 1_000_000), "gzip")) == b" " * 1_000_000


def test_the_memory_of_the_libraries_is_reserved():
    reserved = []
    inflate(gzip.compress(b"x"), "gzip", reserved=reserved)
    inflate(zstandard.compress(b"x" * 1_000), "zstd", reserved=reserved)
    streamed = zstandard.ZstdCompressor(level=19).compressobj()
    inflate(streamed.compress(b"x" * 1_000) + streamed.flush(), "zstd", reserved=reserved)
    assert reserved == [GZIP_BYTES, 1_024, ZSTD_WINDOW_BYTES_MAX] or reserved[1] < 2_000
    assert reserved[2] == ZSTD_WINDOW_BYTES_MAX


def test_nothing_is_inflated_without_reserved_memory():
    def refuse(_size):
        raise TooManyStreams

    for coding, body in (("gzip", gzip.compress(b"x")), ("zstd", zstandard.compress(b"x" * 100))):
        with pytest.raises(TooManyStreams):
            list(Inflater().inflated(iter([body]), coding, refuse))


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_corrupted_or_truncated_bodies_are_rejected(coding):
    """Reference common#content-encoding."""
    whole = gzip.compress(b"x" * 1_000) if coding == "gzip" else zstandard.compress(b"x" * 1_000)
    for body in (b"nothing of the kind, and long enough", whole[:-5], b""):
        with pytest.raises(Malformed, match=f"Not in {coding.upper()} format"):
            inflate(body, coding)


def test_an_unknown_coding_is_ignored():
    assert inflate(b"plain", "br") == [b"plain"]


@pytest.mark.parametrize("piece", [1, 7, 65_536])
def test_all_members_of_a_gzip_body_are_read(piece):
    body = gzip.compress(b'[{"a":1},') + gzip.compress(b"") + gzip.compress(b'{"a":2}]')
    assert b"".join(inflate(body, "gzip", piece=piece)) == b'[{"a":1},{"a":2}]'


@pytest.mark.parametrize("piece", [1, 65_536])
def test_data_behind_a_gzip_body_must_be_another_gzip_member(piece):
    for rest in (b"garbage", b"\0" * 100, gzip.compress(b"x" * 1_000)[:-5]):
        with pytest.raises(Malformed, match="Not in GZIP format"):
            inflate(gzip.compress(b"[]") + rest, "gzip", piece=piece)


def test_data_behind_a_gzip_body_is_not_kept_in_memory():
    """zlib's object would append all of it to its buffer, which takes quadratic time."""
    given = 0

    def endless():
        nonlocal given
        yield gzip.compress(b"[]")
        for _ in range(100):
            given += 1
            yield b"x" * 65_536

    with pytest.raises(Malformed, match="Not in GZIP format"):
        list(Inflater().inflated(endless(), "gzip", lambda _: None))
    assert given == 1


@pytest.mark.parametrize("times", [2, 20])
def test_a_gzip_body_of_very_many_members_is_rejected(times):
    """Reference common#content-encoding."""
    member = gzip.compress(b"")
    assert inflate(member * GZIP_MEMBERS_MAX, "gzip") == [b""] * GZIP_MEMBERS_MAX
    with pytest.raises(TooLarge, match="more than 1000 gzip members"):
        inflate(member * GZIP_MEMBERS_MAX * times, "gzip")
