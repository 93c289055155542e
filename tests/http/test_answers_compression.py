import gzip
import zlib

import falcon
import falcon.testing
import pytest

from rioni.http import answers
from rioni.http.answers import STEP_BYTES, GzipStream, accepts_gzip, compress_answer


def request(accept):
    headers = {} if accept is None else {"Accept-Encoding": accept}
    return falcon.Request(falcon.testing.create_environ(headers=headers))


@pytest.mark.parametrize("accept", ["gzip", "deflate, GZIP", "gzip;q=0.5", "br, gzip; q=1"])
def test_gzip_is_accepted(accept):
    """Reference common#compression."""
    assert accepts_gzip(request(accept))


@pytest.mark.parametrize("accept", [None, "", "identity", "gzip;q=0", "gzip; q=0.0", "xgzip"])
def test_other_codings_are_not_taken_for_gzip(accept):
    """Reference common#compression."""
    assert not accepts_gzip(request(accept))


def test_large_answers_are_compressed_and_small_ones_are_not():
    """Reference common#compression."""
    for length, compressed in ((255, False), (256, True), (10_000, True)):
        resp = falcon.Response()
        resp.data = b"x" * length
        compress_answer(request("gzip"), resp)
        assert (resp.get_header("Content-Encoding") == "gzip") is compressed
        assert (gzip.decompress(resp.data) if compressed else resp.data) == b"x" * length


class Pieces:
    def __init__(self, *pieces):
        self.pieces = iter(pieces)
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.pieces)

    def close(self):
        self.closed = True


def test_every_piece_of_a_stream_can_be_decompressed_when_it_arrives():
    """Reference common#compression."""
    stream = GzipStream(Pieces(b"", b"first\n", b"second\n"))
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    assert next(stream) == b""
    assert inflate.decompress(next(stream)) == b"first\n"
    assert inflate.decompress(next(stream)) == b"second\n"
    assert inflate.decompress(next(stream)) == b""
    assert inflate.eof
    assert next(stream, None) is None


class Time:
    """A clock by which each step takes so long."""

    def __init__(self, step_s):
        self.now_s, self.step_s, self.pauses = 0, step_s, 0

    def monotonic(self):
        self.now_s += self.step_s
        return self.now_s

    def sleep(self, _):
        self.pauses += 1


def test_other_greenlets_run_between_the_steps_of_a_large_piece(monkeypatch):
    time = Time(step_s=1)
    monkeypatch.setattr(answers, "time", time)
    data = b"x" * (5 * STEP_BYTES)
    for pieces in ([data], [data[:STEP_BYTES]] * 5):
        time.pauses = 0
        assert gzip.decompress(b"".join(GzipStream(Pieces(*pieces)))) == data
        assert time.pauses == len(data) / STEP_BYTES - 1


def test_pieces_that_come_now_and_then_are_not_delayed(monkeypatch):
    time = Time(step_s=0.0001)
    monkeypatch.setattr(answers, "time", time)
    stream = GzipStream(Pieces(*[b"{}\n"] * 10))
    for _ in range(10):
        time.now_s += 1
        next(stream)
    assert time.pauses == 0


def test_closing_closes_the_inner_stream():
    pieces = Pieces()
    GzipStream(pieces).close()
    assert pieces.closed
