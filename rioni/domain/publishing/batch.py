"""Splits the body of a publish request into events, each with its values and its original bytes.

Sources: reference publishing#batch-format.
"""

import codecs
import re
from typing import Any

import msgspec
import orjson

from rioni.domain.errors import Malformed, TooLarge
from rioni.domain.limits import Limits
from rioni.domain.schemas import strict_json
from rioni.domain.schemas.strict_json import INT64_MAX, INT64_MIN, JsonError


EVENT_BYTES_MAX = 8_000_000
"""Larger events are not read; smaller ones beyond the event type's limit get an error result each, in a later step."""
DEPTH_MAX = 64
PART_BYTES = 500_000
"""Maximum bytes per library call: about 5 ms, which block the process."""
_DEFAULTS = Limits()


class Batch(msgspec.Struct, frozen=True):
    """The events of one request, in its order."""

    body: bytes
    """The request's body, decompressed."""
    raw: list[bytes]
    """The JSON of each event, byte for byte as received."""
    values: list[dict[str, Any]]
    """The decoded JSON of each event."""

    def __len__(self) -> int:
        """The number of events."""
        return len(self.raw)

    @property
    def lines(self) -> list[bytes]:
        """The JSON of each event as it is stored: without line breaks, for consumers that read line by line."""
        return one_line(self.raw) if b"\n" in self.body or b"\r" in self.body else self.raw


def split(body: bytes, limits: Limits = _DEFAULTS, *, depth_max: int = DEPTH_MAX) -> Batch:
    r"""Split a JSON array of objects.

    Two readers share the work. msgspec reads bodies, large ones part by part, and refuses anything but JSON. What JSON
    allows and the contract does not (duplicate keys, integers beyond 64 bits, deep nesting) shows in cheap counts; only
    then, or when msgspec has refused, the strict reader goes over the events, and its verdict holds. It also takes the
    contract's lax separators (`[{}{}]`, `[{},,{}]`). Leading zeros and the escape `\'`, which the contract tolerates,
    are refused: consumers get the bytes as they are, and most of them could not read these.

    Args:
        body: the request's body, decompressed.
        limits: the limits of a batch.
        depth_max: how deeply an event may nest objects and arrays, itself included.

    Raises:
        Malformed: the body is not such an array, or nested too deeply.
        TooLarge: too many bytes, values or events, or an event beyond `EVENT_BYTES_MAX`.
    """
    if len(body) > limits.body_bytes_max:
        raise TooLarge(f"Batch too large: {len(body)} bytes, max size is {limits.body_bytes_max} bytes")
    events_max, values_max = limits.batch_events_max, limits.batch_values_max
    # Before anything is allocated: a few bytes of compressed brackets may become gigabytes of empty lists.
    if len(body) > values_max and _values_count(body) > values_max:
        raise TooLarge(
            f"Batch has more than {values_max} values (commas and brackets); send fewer events in one request"
        )
    if len(body) <= PART_BYTES and (batch := _split_fast(body, events_max, depth_max)) is not None:
        return batch
    reader = _BatchReader(body, events_max, depth_max)
    try:
        return reader.read()
    except (JsonError, TooLarge) as ex:
        reader.forget()
        raise ex if isinstance(ex, TooLarge) else Malformed(f"Error occurred when parsing event(s). {ex}") from ex


def one_line(events: list[bytes]) -> list[bytes]:
    """Remove line breaks and tabs.

    JSON has no such characters inside strings, and outside they are insignificant: no value changes.
    """
    return [event.translate(None, b"\r\n\t") for event in events]


def _values_count(body: bytes) -> int:
    """Upper bound of the number of values in a body, without parsing strings. Other threads run in between."""
    starts = range(0, len(body), _STEP)
    return sum(body.count(mark, start, start + _STEP) for start in starts for mark in (b",", b"[", b"{"))


# --- The common case ---

_decode_values = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _split_fast(body: bytes, events_max: int, depth_max: int) -> Batch | None:
    """The batch, or None if the strict reader has to read it.

    PERF: 100 events of 200 bytes take 35 µs for the values, 20 µs for the bytes, 35 µs for all suspicions.
    """
    # An event has at least two bytes, one of them a brace: the values of millions of `{}` are not even built.
    if len(body) >= 2 * events_max and body.count(b"{") > events_max:
        return None
    try:
        raw = list(map(bytes, _decode_raw(body)))
    except (msgspec.MsgspecError, RecursionError):
        return None
    values = _values(body, depth_max)
    return None if values is None else Batch(body, raw, values)


def _values(body: bytes, depth_max: int) -> list[dict[str, Any]] | None:
    """The decoded events of a body, or None if the strict reader has to read it."""
    try:
        values = _decode_values(body)
        written = _write(values, depth_max)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        return None
    # PERF: most clients write JSON as orjson does, without spaces; comparing is faster than counting.
    if written == body:
        return values
    # If two members have the same name, only one is written again, so a colon is missing. A colon in a string is
    # written as it came, unless it came as \u003a.
    if written.count(b":") != body.count(b":") or (b"\\" in body and b"\\u003" in body):
        return None
    return values


_WRITTEN_DEPTH_MAX = 254
"""orjson writes no arrays and objects that are nested deeper."""


def _write(values: list[dict[str, Any]], depth_max: int) -> bytes:
    """Write the values again.

    Raises:
        TypeError: an integer does not fit into 64 bits, or an event is nested too deeply.
    """
    # Wrapped up so far that only events of the allowed depth fit. PERF: counting brackets takes longer.
    depth = _WRITTEN_DEPTH_MAX - depth_max - 1
    unused = _WRAPS.setdefault(depth, [])
    # PERF: building one takes 13 µs. Each is used by one thread at a time.
    try:
        outermost, innermost = unused.pop()
    except IndexError:
        outermost, innermost = _wrap(depth)
    innermost[0] = values
    try:
        written = orjson.dumps(outermost, option=orjson.OPT_STRICT_INTEGER)
    except TypeError:
        # Beyond 53 bits, as identifiers often are: is it also beyond 63?
        _refuse_huge_integers(values)
        written = orjson.dumps(outermost)
    finally:
        innermost[0] = None
        unused.append((outermost, innermost))
    return written[depth:-depth]


_WRAPS: dict[int, list[tuple[list[Any], list[Any]]]] = {}
"""Unused nested lists by depth, each with its innermost list."""


def _wrap(depth: int) -> tuple[list[Any], list[Any]]:
    """Return nested lists, and the innermost of them, which has room for one value."""
    outermost: list[Any] = [None]
    innermost = outermost
    for _ in range(depth - 1):
        outermost = [outermost]
    return outermost, innermost


def _refuse_huge_integers(values: list[dict[str, Any]]) -> None:
    stack: list[Any] = [values]
    while stack:
        for value in strict_json.children(stack.pop()):
            if isinstance(value, dict | list):
                stack.append(value)
            elif type(value) is int and not INT64_MIN <= value <= INT64_MAX:
                raise TypeError(value)


# --- Large and suspicious bodies ---

_STEP = 65_536
"""Bytes scanned before other greenlets may run."""
_SPACE = re.compile(rb"[ \t\r\n]{0,65536}")
_SEPARATORS = re.compile(rb"[ \t\r\n,]{0,65536}")
_BEGINNING = re.compile(rb"""\{[ \t\r\n]{0,64}"[^"\\]{0,64}"?""")
_PART_BYTES_MAX = 4 * PART_BYTES
"""The maximum size of a part that is a single event."""
_EVENT_STEP = 4_096
"""The strict reader begins with this many bytes of an event, and takes four times as many until it sees the end."""
_LITERAL_CHARACTERS_MAX = 100
_UTF8_CONTINUATIONS = bytes(range(0x80, 0xC0))


class _BatchReader:
    """Reads a body from its beginning to its end: as many events at once as the fast reader takes, else one by one."""

    def __init__(self, body: bytes, events_max: int, depth_max: int) -> None:
        self._body = body
        self._events_max = events_max
        self._depth_max = depth_max
        self._position = 0
        # The fast reader is not tried again before this.
        self._suspicious_end = len(body) if len(body) <= PART_BYTES else 0
        self._batch = Batch(body, [], [])

    def read(self) -> Batch:
        """Read all of it.

        Raises:
            JsonError: it is no array of events.
            TooLarge: too many events, or too large ones.
        """
        self._skip(_SPACE)
        if self._next() != b"[":
            raise JsonError("Array of events should start with [", self._characters(self._position))
        self._position += 1
        self._skip(_SEPARATORS)
        while self._next() not in (b"]", b""):
            if len(self._batch) == self._events_max:
                raise TooLarge(f"Batch has more than {self._events_max} events")
            if self._position < self._suspicious_end or not self._read_part():
                self._read_event()
            self._skip(_SEPARATORS)
        end = self._position + 1
        self._position = min(end, len(self._body))
        self._skip(_SPACE)
        if end > len(self._body) or self._position < len(self._body):
            raise JsonError("Array of events should end with ]", self._characters(self._content_end()))
        return self._batch

    def forget(self) -> None:
        """Free the events. PERF: else the error keeps them until it is answered; then the hub takes 20 ms for them."""
        for events in (self._batch.raw, self._batch.values):
            while events:
                events.pop()

    def _next(self) -> bytes:
        return self._body[self._position : self._position + 1]

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        while (match := pattern.match(self._body, self._position)) is not None and match.end() > self._position:
            self._position = match.end()

    def _read_part(self) -> bool:
        """Read some events at once; False if that is not possible."""
        start, end = self._position, self._part_end()
        part = b"[%b]" % self._body[start:end].rstrip(b" \t\r\n,")
        batch = _split_fast(part, self._events_max - len(self._batch), self._depth_max)
        if batch is None:
            self._suspicious_end = end
            return False
        self._batch.raw.extend(batch.raw)
        self._batch.values.extend(batch.values)
        self._position = end
        return True

    def _part_end(self) -> int:
        """The index at which the last event of a part might end; decoding up to there shows whether it does."""
        body, start = self._body, self._position
        rest = len(body) - start
        # Events of one batch mostly begin alike.
        if rest > PART_BYTES and (beginning := _BEGINNING.match(body, start)) is not None:
            end = body.rfind(beginning[0], start + 1, start + PART_BYTES)
            if end < 0:
                end = body.find(beginning[0], start + PART_BYTES, start + _PART_BYTES_MAX)
            if end >= 0:
                return end
        if rest <= _PART_BYTES_MAX and (end := body.rfind(b"]", start)) >= 0:
            return end
        return start + PART_BYTES

    def _read_event(self) -> None:
        """Read one event strictly."""
        start = self._position
        if self._next() != b"{":
            raise JsonError("Illegal character", self._characters(start))
        value, self._position = self._decode_at(start)
        if strict_json.depth(value) > self._depth_max:
            raise JsonError(f"More than {self._depth_max} nested objects and arrays")
        self._batch.raw.append(self._body[start : self._position])
        self._batch.values.append(value)

    def _decode_at(self, start: int) -> tuple[dict[str, Any], int]:
        """Return the event that begins at an index, and the index after it."""
        size = _EVENT_STEP
        while True:
            text = self._text(start, start + size)
            complete = start + size >= len(self._body)
            try:
                value, end = strict_json.decode_at(text, 0)
            except JsonError as ex:
                if not complete and size < EVENT_BYTES_MAX:
                    size = min(4 * size, EVENT_BYTES_MAX)
                    continue
                raise self._explained(ex, start, text, complete=complete) from ex
            return value, start + len(text[:end].encode())

    def _explained(self, error: JsonError, start: int, text: str, *, complete: bool) -> JsonError | TooLarge:
        """The error as it is in the whole body."""
        if error.position is None:
            return error
        if not complete and error.position > len(text) - _LITERAL_CHARACTERS_MAX:
            return TooLarge(f"Event too large: more than {EVENT_BYTES_MAX} bytes")
        if error.position == len(text):
            return JsonError(f"Unclosed object staring at {self._characters(start)} found.")
        return JsonError(error.reason, self._characters(start) + error.position)

    def _text(self, start: int, end: int) -> str:
        """A part of the body, up to a whole character."""
        try:
            return codecs.utf_8_decode(self._body[start:end], "strict", end >= len(self._body))[0]
        except UnicodeError as ex:
            raise JsonError(f"Not UTF-8: {ex}") from ex

    def _characters(self, end: int) -> int:
        """How many characters there are before an index."""
        steps = (self._body[start : min(start + _STEP, end)] for start in range(0, end, _STEP))
        return sum(len(step.translate(None, _UTF8_CONTINUATIONS)) for step in steps)

    def _content_end(self) -> int:
        """The index after the last character that is not white space."""
        for end in range(len(self._body), 0, -_STEP):
            start = max(0, end - _STEP)
            if content := self._body[start:end].rstrip(b" \t\r\n"):
                return start + len(content)
        return 0
