"""Reads events from files of any length: JSON lines, JSON objects one after the other or in an array.

Only what one event takes is in memory. What can't be read is reported with its line, and reading goes on where that is
possible.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, NamedTuple

import msgspec


EVENT_BYTES_MAX = 8_000_000
"""No broker of the API reads a larger event."""
PIECE_BYTES = 1_000_000
"""Lines that are longer are read in pieces."""

JSONL, JSON, CSV, TSV = "jsonl", "json", "csv", "tsv"
FORMATS = (JSONL, JSON, CSV, TSV)
_ENDINGS = {".jsonl": JSONL, ".ndjson": JSONL, ".json": JSON, ".csv": CSV, ".tsv": TSV}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Record(NamedTuple):
    """An event of a file."""

    line: int
    """Where it begins, from 1."""
    text: bytes
    """Its JSON, an object."""


class Unreadable(NamedTuple):
    """Something that is not an event."""

    line: int
    reason: str
    text: bytes


Found = Record | Unreadable

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file with their ends; of longer ones pieces, which have none."""
    first = True
    while line := file.readline(PIECE_BYTES):
        yield line.removeprefix(_BYTE_ORDER_MARK) if first else line
        first = False


def detected(name: str, lines: Iterator[bytes]) -> tuple[str, Iterator[bytes]]:
    """The format of a file: by the ending of its name, otherwise by its first line; and all of its lines."""
    for ending, known in _ENDINGS.items():
        if name.lower().endswith(ending):
            return known, lines
    begin: list[bytes] = []
    for line in lines:
        begin.append(line)
        if line.strip():
            break
    head = begin[-1].strip() if begin else b""
    return _detected(head), chain(begin, lines)


def _detected(head: bytes) -> str:
    if head.startswith(b"[") or (head.startswith(b"{") and _problem(head)):
        return JSON
    if head.startswith(b"{") or not head:
        return JSONL
    return TSV if b"\t" in head else CSV


def json_lines(lines: Iterable[bytes]) -> Iterator[Found]:
    """The events of a file that has one in each line; empty lines are passed over."""
    pieces: list[bytes] = []
    size, number = 0, 1
    for piece in chain(lines, [b""]):
        size += len(piece)
        if size <= EVENT_BYTES_MAX + 1:
            pieces.append(piece)
        if piece and not piece.endswith(b"\n"):
            continue
        text = b"".join(pieces).strip()
        if size > EVENT_BYTES_MAX + 1:
            yield Unreadable(number, f"an event has more than {EVENT_BYTES_MAX:,} bytes", text[:1_000])
        elif text:
            yield _checked(number, text)
        pieces, size, number = [], 0, number + 1


_BETWEEN = re.compile(rb"[\s,\[\]]*")
# A string, what opens and closes, or a quotation mark whose string goes on in the next piece.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)


def json_values(lines: Iterable[bytes]) -> Iterator[Found]:
    """The events of a file that has objects one after the other, over any number of lines, or in an array."""
    reading = _Values()
    for line in lines:
        yield from reading.feed(line)
        if reading.failed:
            return
    yield from reading.end()


class _Values:
    """Splits a text into its objects."""

    def __init__(self) -> None:
        self.failed = False
        self._text = b""
        self._at = 0
        """Where the present object begins, or the text between two."""
        self._line = 1
        """The line of that."""
        self._arrays = 0
        """How many are open around the objects."""
        self._depth = 0
        """How many brackets of the present object are open."""
        self._scanned = 0
        """How much of the text was looked at."""

    def feed(self, piece: bytes) -> Iterator[Found]:
        self._text = self._text[self._at :] + piece
        self._scanned -= self._at
        self._at = 0
        while not self.failed:
            if not self._depth and not self._begin():
                if self._at < len(self._text):
                    yield self._fail("here an object has to begin")
                return
            if (end := self._find_end()) is None:
                if len(self._text) - self._at > EVENT_BYTES_MAX:
                    yield self._fail(f"an event has more than {EVENT_BYTES_MAX:,} bytes")
                return
            yield _checked(self._line, self._text[self._at : end])
            self._move(end)

    def end(self) -> Iterator[Found]:
        if self._depth:
            yield self._fail("the object that begins here does not end")
        elif self._arrays > 0:
            yield self._fail("the array does not end: the file is not complete")

    def _begin(self) -> bool:
        """Go to the beginning of the next object; whether there is one."""
        match = _BETWEEN.match(self._text, self._at)
        assert match is not None, "it matches the empty text"
        self._arrays += match[0].count(b"[") - match[0].count(b"]")
        self._move(match.end())
        self._depth = int(self._text.startswith(b"{", self._at))
        self._scanned = self._at + 1
        return bool(self._depth)

    def _find_end(self) -> int | None:
        """The end of the present object; None if it is not there yet."""
        for match in _TOKEN.finditer(self._text, self._scanned):
            token = match[0]
            if token == b'"':
                self._scanned = match.start()
                return None
            self._depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
            self._scanned = match.end()
            if not self._depth:
                return match.end()
        self._scanned = len(self._text)
        return None

    def _move(self, to: int) -> None:
        self._line += self._text.count(b"\n", self._at, to)
        self._at = to

    def _fail(self, reason: str) -> Unreadable:
        self.failed = True
        return Unreadable(self._line, reason, self._text[self._at : self._at + 1_000])


def _checked(line: int, text: bytes) -> Found:
    problem = _problem(text)
    return Record(line, text) if problem is None else Unreadable(line, problem, text)


def _problem(text: bytes) -> str | None:
    """Why a text is not an event; None if it is one."""
    if not text.startswith(b"{"):
        return "an event has to be a JSON object"
    try:
        _decode(text)
    except msgspec.MsgspecError as ex:
        return f"it is not JSON: {str(ex).removeprefix('JSON is malformed: ')}"
    except RecursionError:
        return "it is nested too deeply"
    return None
