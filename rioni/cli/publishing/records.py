"""Reads events from files of any length: JSON lines, JSON objects one after the other or in an array.

Only one event at a time is in memory. A text that is no event is reported with its line, and reading goes on if that
is possible. Events are read with the reader that the broker has, so that both refuse the same.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, NamedTuple

from rioni.domain.errors import Invalid, Malformed, TooLarge
from rioni.domain.publishing.batch import split
from rioni.domain.schemas import strict_json


EVENT_BYTES_MAX = 8_000_000
"""No broker of the API reads a larger event."""
PIECE_BYTES = 1_000_000
"""Lines that are longer are read in pieces."""
_SHOWN_BYTES = 60
"""The beginning of a line in an error."""

JSONL, JSON, CSV, TSV = "jsonl", "json", "csv", "tsv"
_ENDINGS = {".jsonl": JSONL, ".ndjson": JSONL, ".json": JSON, ".csv": CSV, ".tsv": TSV}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MARKED = "a byte order mark that is not the beginning of the file: were files joined? Remove it"
_FOREIGN = {
    b"\x1f\x8b": "it is compressed with gzip: give it a name that ends with .gz, or pipe it through `gunzip`",
    b"\xff\xfe": "it is UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "it is UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`",
}
"""Beginnings that no text of an event has, and the advice for each."""


class FileEvent(NamedTuple):
    """An event of a file."""

    line: int
    """The line at which it begins, from 1."""
    text: bytes
    """The JSON of the event, an object."""


class Unreadable(NamedTuple):
    """Something that is not an event."""

    line: int
    reason: str
    text: bytes


Found = FileEvent | Unreadable


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file with their ends; of longer ones pieces, which have none.

    Raises:
        Invalid: the file is not UTF-8 from its first bytes on.
    """
    first = True
    while line := file.readline(PIECE_BYTES):
        if first:
            _check_encoding(line)
        yield line.removeprefix(_BYTE_ORDER_MARK) if first else line
        first = False


def _check_encoding(begin: bytes) -> None:
    for mark, reason in _FOREIGN.items():
        if begin.startswith(mark):
            raise Invalid(f"{reason}.")
    if b"\0" in begin:
        raise Invalid("line 1 has NUL bytes: it is UTF-16, or no text.")


def detected(name: str, lines: Iterator[bytes]) -> tuple[str, Iterator[bytes]]:
    """The format of a file, and all of its lines.

    The ending of the name decides; without a known one the content has to be JSON, which its first character shows.
    CSV is not guessed: nearly every text is CSV.

    Raises:
        Invalid: the content is not JSON.
    """
    for ending, known in _ENDINGS.items():
        if name.lower().endswith(ending):
            return known, lines
    begin: list[bytes] = []
    for line in lines:
        begin.append(line)
        if line.strip():
            break
    head = begin[-1].strip() if begin else b""
    return _detected(head, len(begin)), chain(begin, lines)


def _detected(head: bytes, line: int) -> str:
    if head.startswith(b"[") or (head.startswith(b"{") and _problem(head)):
        return JSON
    if head.startswith(b"{") or not head:
        return JSONL
    shown = head[:_SHOWN_BYTES].decode(errors="replace")
    if _is_json(head):
        raise Invalid(f"line {line} is not an event, which is a JSON object: {shown!r}.")
    raise Invalid(f"line {line} is not JSON: {shown!r}. For CSV and TSV say --format csv or --format tsv.")


def _is_json(text: bytes) -> bool:
    try:
        strict_json.decode(text)
    except (TooLarge, Malformed, strict_json.JsonError):
        return False
    return True


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
            yield checked(number, text)
        pieces, size, number = [], 0, number + 1


_SPACE = re.compile(rb"[ \t\r\n]*")
# A string, an opening or closing bracket, or a quotation mark whose string goes on in the next piece.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)


def json_values(lines: Iterable[bytes]) -> Iterator[Found]:
    """The events of a file that has objects one after the other, over any number of lines, or in an array."""
    reading = _Values()
    for line in lines:
        yield from reading.feed(line)
        if reading.failed:
            return
    yield from reading.end()


_OUTSIDE, _ARRAY, _AFTER_ITEM, _AFTER_COMMA = range(4)
"""Places between objects: outside of arrays, at the beginning of an array, after an item, after a comma."""
_PUNCTUATION = {
    (_OUTSIDE, b"["): _ARRAY,
    (_ARRAY, b"]"): _OUTSIDE,
    (_AFTER_ITEM, b"]"): _OUTSIDE,
    (_AFTER_ITEM, b","): _AFTER_COMMA,
}
"""The next place, by a place and the character there."""
_EXPECTED = {
    _OUTSIDE: "an event has to be a JSON object: here an object has to begin",
    _ARRAY: "an event has to be a JSON object: here an object has to begin",
    _AFTER_ITEM: "here a comma or the end of the array has to be",
    _AFTER_COMMA: "an event has to be a JSON object: here an object has to begin",
}


class _Values:
    """Splits a text into its objects."""

    def __init__(self) -> None:
        self.failed = False
        self._text = b""
        self._at = 0
        """The place at which the present object, or the text between two objects, begins."""
        self._line = 1
        """The line of that."""
        self._place = _OUTSIDE
        self._depth = 0
        """The number of open brackets of the present object."""
        self._scanned = 0
        """The number of bytes of the text that were examined."""

    def feed(self, piece: bytes) -> Iterator[Found]:
        self._text = self._text[self._at :] + piece
        self._scanned -= self._at
        self._at = 0
        while not self.failed:
            if not self._depth and not self._begin():
                if self._at < len(self._text):
                    yield self._fail(_EXPECTED[self._place])
                return
            if (end := self._find_end()) is None:
                if len(self._text) - self._at > EVENT_BYTES_MAX:
                    yield self._fail(f"an event has more than {EVENT_BYTES_MAX:,} bytes")
                return
            yield checked(self._line, self._text[self._at : end])
            self._move(end)

    def end(self) -> Iterator[Found]:
        if self._depth:
            yield self._fail("the object that begins here does not end")
        elif self._place != _OUTSIDE and not self.failed:
            yield self._fail("the array does not end: the file is not complete")

    def _begin(self) -> bool:
        """Go to the beginning of the next object; whether there is one."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None, "it matches the empty text"
            self._move(match.end())
            char = self._text[self._at : self._at + 1]
            if char == b"{" and self._place != _AFTER_ITEM:
                self._depth, self._scanned = 1, self._at + 1
                self._place = _OUTSIDE if self._place == _OUTSIDE else _AFTER_ITEM
                return True
            following = _PUNCTUATION.get((self._place, char))
            if following is None:
                return False
            self._place = following
            self._move(self._at + 1)

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
        text = self._text[self._at : self._at + 1_000]
        return Unreadable(self._line, _unless_marked(text, reason), text)


def checked(line: int, text: bytes) -> Found:
    """An event, if the text is one that a broker reads."""
    problem = _problem(text)
    return FileEvent(line, text) if problem is None else Unreadable(line, problem, text)


def _unless_marked(text: bytes, reason: str) -> str:
    return f"here is {MARKED}" if text.startswith(_BYTE_ORDER_MARK) else reason


def _problem(text: bytes) -> str | None:
    """The reason why a text is not an event; None if it is one."""
    if not text.startswith(b"{"):
        return _unless_marked(text, "an event has to be a JSON object")
    try:
        # The broker accepts events with or without commas between them.
        if text.endswith(b"}") and len(split(b"[%b]" % text)) == 1:
            return None
        strict_json.decode(text)
    except TooLarge as ex:
        return str(ex)
    except Malformed as ex:
        return f"it is not JSON: {_reason(text) or ex}"
    except strict_json.JsonError as ex:
        return f"it is not JSON: {ex}"
    return "it is not JSON: more than one value"


def _reason(text: bytes) -> str | None:
    """The error that the strict reader reports, with its position in this text; None if it reports none."""
    try:
        strict_json.decode(text)
    except strict_json.JsonError as ex:
        return str(ex)
    return None
