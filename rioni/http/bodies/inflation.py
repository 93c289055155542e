"""Inflates request bodies step by step, within bounds of size, memory and time.

The steps of all requests run one after the other, each followed by a pause in which other greenlets run: however many
compressed bodies come at once, the worker stays responsive.
"""

import threading
import time
import zlib
from collections.abc import Callable, Iterator

import zstandard

from rioni.domain.errors import Malformed, Overloaded, TooLarge


STEP_BYTES = 500_000
"""PERF: inflating so much takes 1 to 5 ms; then other greenlets run."""
LONG_BYTES = 50_000
"""Bytes that are not worth a pause."""
BREATH_S = 0.001
"""Sleeping for zero seconds would run ready greenlets only, and no expired timers."""
TURN_S = 30.0
"""Time limit of waiting for the steps of other requests."""
RETRY_AFTER_S = 5
RATIO_MAX, RATIO_BYTES_MIN = 200, 10_000_000
"""PERF: gzip makes a fiftieth of events that differ in an id and a time, and a thousandth of one byte repeated."""
GZIP_MEMBERS_MAX = 1_000
"""gzip allows several compressed parts one after the other (RFC 1952, 2.2); tools make one, or one for each 64 kB."""
GZIP_BYTES = 40_000
"""Memory of the library for one body, beside the output."""
ZSTD_WINDOW_BYTES_MAX = 2**23
ZSTD_STEP_BYTES = 32
"""PERF: four bytes of Zstandard can become 128 kB, so these become 1 MB at most."""
_ZSTD_HEADER_BYTES_MAX = 18

_Inflate = Callable[[bytes, int], bytes]


class Inflater:
    """Inflates the bodies of one worker process."""

    def __init__(self) -> None:
        # Held by greenlets, for one step and its break; nothing in between waits for a client.
        self._turn = threading.Lock()

    def inflated(self, pieces: Iterator[bytes], coding: str, reserve: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the pieces of a body without its content coding.

        Args:
            pieces: as received from the client.
            coding: the header `Content-Encoding`; other codings than gzip and zstd are ignored.
            reserve: called with the bytes of memory that inflating takes, before it does; may raise.

        Raises:
            Malformed: they are not in that coding.
            TooLarge: they are compressed by more than `RATIO_MAX`, or have more than `GZIP_MEMBERS_MAX` parts.
            Overloaded: too many bodies are inflated at a time.
        """
        if coding == "gzip":
            reserve(GZIP_BYTES)
            return self._gunzip(pieces)
        if coding == "zstd":
            return self._unzstd(pieces, reserve)
        return pieces

    def _gunzip(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        inflate, members = zlib.decompressobj(zlib.MAX_WBITS | 16), 1
        ratio = _Ratio()
        try:
            for piece in pieces:
                rest = piece
                ratio.received += len(piece)
                while rest:
                    # What is behind the end of a member is never given to its object, which would keep all of it.
                    if inflate.eof:
                        inflate, members = zlib.decompressobj(zlib.MAX_WBITS | 16), members + 1
                    if members > GZIP_MEMBERS_MAX:
                        raise TooLarge(f"The body has more than {GZIP_MEMBERS_MAX} gzip members; send it as one")
                    yield ratio.checked(self._step(inflate.decompress, rest, STEP_BYTES))
                    rest = inflate.unconsumed_tail or inflate.unused_data
        except zlib.error as ex:
            raise Malformed("Not in GZIP format") from ex
        if not inflate.eof:
            raise Malformed("Not in GZIP format")

    def _unzstd(self, pieces: Iterator[bytes], reserve: Callable[[int], None]) -> Iterator[bytes]:
        inflate = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).decompressobj()
        ratio = _Ratio()
        try:
            for piece in pieces:
                if not ratio.received:
                    reserve(_window_bytes(piece))
                ratio.received += len(piece)
                for start in range(0, len(piece), ZSTD_STEP_BYTES):
                    yield ratio.checked(self._step(inflate.decompress, piece[start : start + ZSTD_STEP_BYTES]))
        except zstandard.ZstdError as ex:
            raise Malformed("Not in ZSTD format") from ex
        if not inflate.eof:
            raise Malformed("Not in ZSTD format")

    def _step(self, decompress: Callable[..., bytes], *args: bytes | int) -> bytes:
        """Run one step, when it is this request's turn."""
        if not self._turn.acquire(timeout=TURN_S):
            raise Overloaded("Too many compressed bodies come at once; try again later", RETRY_AFTER_S)
        try:
            inflated = decompress(*args)
            if len(inflated) > LONG_BYTES:
                time.sleep(BREATH_S)
            return inflated
        finally:
            self._turn.release()


class _Ratio:
    """Checks the compression ratio of a body."""

    def __init__(self) -> None:
        self.received = self._inflated = 0

    def checked(self, piece: bytes) -> bytes:
        """Count what has been inflated; raises TooLarge where the ratio is above the limit."""
        self._inflated += len(piece)
        if self._inflated > RATIO_BYTES_MIN and self._inflated > RATIO_MAX * self.received:
            raise TooLarge(
                f"The body is larger than {RATIO_MAX} times what came of it compressed; send less at a time, or not "
                "compressed"
            )
        return piece


def _window_bytes(beginning: bytes) -> int:
    """The memory that a Zstandard frame needs, as its header says; the largest allowed where that is not known."""
    if len(beginning) < _ZSTD_HEADER_BYTES_MAX:
        return ZSTD_WINDOW_BYTES_MAX
    try:
        return min(zstandard.get_frame_parameters(beginning).window_size, ZSTD_WINDOW_BYTES_MAX)
    except zstandard.ZstdError:
        return ZSTD_WINDOW_BYTES_MAX
