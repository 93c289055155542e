"""Filters: a CEL expression about an event, which decides whether a subscription gets it, and why it does."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET

from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.errors import FilterTooSlow, Invalid
from rioni.domain.subscriptions.filter_reading import (
    CHARACTERS_MAX,
    EVALUATION_NS_MAX,
    NO_MEMBER,
    Reading,
    has_more_values,
    invalid_filter,
    tokens,
)
from rioni.domain.subscriptions.filter_tree import Node, tree


# The language is https://cel.dev: `event.amount > 100 && metadata.flow_id != ''`. An expression comes from strangers
# and runs for every event, so its cost must grow with the event's size and no faster. CEL has no loops but its macros;
# anything that could make them quadratic, in time or in memory, is refused here, by its tokens.
# `rioni.domain.subscriptions.filter_reading` bounds the cost of the rest.

ESCAPED_BYTES_MAX = 32_768
"""The maximum size of an event, for a filter on a member whose name JSON has to escape."""
KEPT_BYTES_MAX = 32_000_000
"""The maximum size of compiled filters that no stream uses at the moment."""
FILTER_BYTES, FILTER_BYTES_PER_CHARACTER = 3_000, 60
"""PERF: of a compiled filter; its patterns are compiled when they run."""


class EventFilter:
    """A compiled expression, evaluated according to the specification of CEL (reference values-cel).

    Args:
        expression: CEL over `event`, the whole event, and `metadata`, short for `event.metadata`; true or false.

    Raises:
        Invalid: it is not such an expression, or too expensive for events of ordinary size.
    """

    def __init__(self, expression: str) -> None:
        if len(expression) > CHARACTERS_MAX:
            raise invalid_filter(f"it has {len(expression)} characters, more than {CHARACTERS_MAX}")
        if "\0" in expression:
            raise invalid_filter("it has the character U+0000; write '\\u0000'")
        # An expression that type checks would refuse today was stored earlier: it is evaluated without them, as CEL
        # permits.
        self._program = _compiled(expression, are_types_checked=False)
        reading = Reading(expression, _literal)
        self.source = expression
        self.cost = reading.cost
        self.calls_event = reading.calls_event
        """Whether it calls a function or macro on the event itself; then it reads no single members."""
        if reason := self.cost.refusal:
            raise invalid_filter(reason)
        self.failures = 0
        """Evaluations that failed, since they were last taken."""
        if any("\0" in member for member in reading.members):
            raise invalid_filter("it asks for a member with the character U+0000 in its name")
        self._members = {f"member_{number}": member for number, member in enumerate(sorted(reading.members))}
        # PERF: members that are not asked for are skipped, not decoded: 1 µs instead of 5 for an event of 1 kB.
        fields = [(field, msgspec.Raw | msgspec.UnsetType, UNSET) for field in self._members]
        kind: Any = dict[str, msgspec.Raw]
        self._event_bytes_max = self.cost.event_bytes_max
        if any(map(_ESCAPED.search, reading.members)):
            # No struct has such names, and a dict takes 2 µs for each member of the event, asked for or not.
            self._event_bytes_max = min(ESCAPED_BYTES_MAX, self._event_bytes_max)
        else:
            kind = msgspec.defstruct("Asked", fields, rename=self._members)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._check_result()

    def matches(self, event: bytes) -> bool:
        """Whether the event is wanted. PERF: 8 µs for one member, 15 µs with the metadata; 5 ms at most.

        An expression that fails, for example because the event lacks a member, does not match: `has(event.member)` asks
        for that; `failures` counts these. An event that can't be evaluated is wanted, since nothing is dropped unseen:
        too much of it would have to be looked at, or it has values that CEL has not.

        Args:
            event: its JSON.

        Raises:
            FilterTooSlow: it took longer than an accepted filter may, twice.
        """
        return self.outcome(event).is_wanted

    def outcome(self, event: bytes) -> "FilterResult":
        """Whether the event is wanted, and why its evaluation failed; raises as `matches` does."""
        if len(event) > self._event_bytes_max:
            return _TOO_LARGE
        try:
            return self._decoded_outcome(event)
        except (msgspec.DecodeError, _NotCarried) as ex:
            return self._failed(str(ex), is_wanted=True)

    def _decoded_outcome(self, event: bytes) -> "FilterResult":
        asked = self._decoder.decode(event)
        if isinstance(asked, dict):
            raw = {name: asked[name] for name in self._members.values() if name in asked}
        else:
            raw = {
                name: value for field, name in self._members.items() if (value := getattr(asked, field)) is not UNSET
            }
        size = sum(map(len, raw.values()))
        values_max = self.cost.values_max(len(event), size)
        if values_max <= 0:
            return _TOO_LARGE
        members = {name: _decoded(value) for name, value in raw.items()}
        # PERF: the values of small events need not be counted: each takes at least a byte, and another byte to separate
        # it.
        if size > values_max:
            if has_more_values(members, values_max):
                return _TOO_LARGE
            return self._timed_outcome(members)
        return self._outcome(members)

    @property
    def bytes_(self) -> int:
        """An estimate of the memory that it takes."""
        return FILTER_BYTES + FILTER_BYTES_PER_CHARACTER * len(self.source)

    def take_failures(self) -> int:
        """How many evaluations have failed since this was last asked."""
        taken, self.failures = self.failures, 0
        return taken

    def _timed_outcome(self, members: dict[str, Any]) -> "FilterResult":
        """Evaluate with a time check: CEL can't be interrupted, so a filter that exceeds its bound is not run again."""
        for _ in range(2):
            begin_ns = time.thread_time_ns()
            outcome = self._outcome(members)
            if time.thread_time_ns() - begin_ns <= EVALUATION_NS_MAX:
                return outcome
        raise FilterTooSlow

    def _outcome(self, members: dict[str, Any]) -> "FilterResult":
        try:
            result = self._evaluate(members)
            value = result.value()
        except RuntimeError as ex:
            return self._failed(str(ex), is_wanted=True)
        if value is True:
            return _WANTED
        if value is False:
            return _NOT_WANTED
        if result.type().name() == "ERROR":
            return self._failed(value, is_wanted=_NOT_CARRIED in value)
        return self._failed(f"it gives {result.type().name()}, which is neither true nor false", is_wanted=False)

    def _failed(self, text: str, *, is_wanted: bool) -> "FilterResult":
        self.failures += 1
        return FilterResult(is_wanted, explained(text))

    def _evaluate(self, members: dict[str, Any]) -> Any:
        return self._program.eval(data={"event": members, "metadata": members.get("metadata", {})})

    def _check_result(self) -> None:
        """Reject expressions that are not boolean for any event."""
        try:
            result = self._evaluate({})
        except RuntimeError as ex:
            raise invalid_filter(f"it always fails: {explained(str(ex))}") from ex
        if result.type().name() not in ("BOOL", "ERROR"):
            raise invalid_filter(f"it has to be true or false, and is {result.plain_value()!r}")
        if result.type().name() == "ERROR" and not self._members:
            raise invalid_filter(f"it always fails: {explained(str(result.value()))}")


class FilterResult(NamedTuple):
    """The result of a filter for an event."""

    is_wanted: bool
    failure: str = ""
    """Why the expression could not be evaluated; empty if it could."""


_WANTED, _NOT_WANTED = FilterResult(is_wanted=True), FilterResult(is_wanted=False)
_TOO_LARGE = FilterResult(is_wanted=True, failure="the event is too large for this filter")
_NOT_CARRIED = "INVALID_ARGUMENT: Integer value"
"""How the error begins of a number that is neither an int nor a uint."""
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
"""Characters in the name of a member that a struct of msgspec can't have."""
_UNUSUAL = re.compile(rb"[0-9]{19}|\\u0000")
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def _decoded(value: msgspec.Raw) -> Any:
    """A value, with all digits of its integers: the fast decoder makes those beyond 64 bits floating.

    Raises:
        _NotCarried: it has the character U+0000, at which the library cuts texts off.
    """
    decoded = msgspec.json.decode(value)
    # PERF: most are plain; looking for long numbers takes 6 ns a byte.
    match decoded:
        case str() if "\0" not in decoded:
            return decoded
        case bool() | int() | None:
            return decoded
    if not _UNUSUAL.search(value):
        return decoded
    if _NUL.search(value):
        raise _NotCarried("the event has text with the character U+0000")
    return json.loads(bytes(value))


class _NotCarried(ValueError):
    """The event has a value that CEL can't represent; the message describes it."""


def checked_filter(expression: str) -> EventFilter:
    """The filter of an expression that is submitted now, whose types have to be right too; raises Invalid."""
    found = event_filter(expression)
    if found.calls_event:
        raise invalid_filter(NO_MEMBER)
    result = _compiled(expression, are_types_checked=True).return_type().name()
    if result not in ("BOOL", "DYN"):
        raise invalid_filter(f"it has to be true or false, and is of type {result}")
    return found


def checked_tree(expression: str) -> Node:
    """The tree of an expression that `checked_filter` has accepted."""
    return tree(_compiled(expression, are_types_checked=True).serialize())


def load_filters() -> None:
    """Import the libraries that filters need.

    Under gevent native threads must not import: they would wait for each other on locks that gevent has patched.
    """
    _environment()


@lru_cache(maxsize=1)
def _environment() -> Any:
    # PERF: the import takes 60 ms, for which only users of a filter wait.
    from cel_expr_python import cel  # noqa: PLC0415

    return cel.NewEnv(variables={"event": cel.Type.DYN, "metadata": cel.Type.DYN})


def _compiled(expression: str, *, are_types_checked: bool) -> Any:
    try:
        return _environment().compile(expression, disable_check=not are_types_checked)
    except RuntimeError as ex:
        shown = [line for line in str(ex).replace(" [INVALID_ARGUMENT]", "").splitlines() if line.startswith(" | ")]
        raise invalid_filter("\n".join([explained(str(ex)), *shown[:2]])) from ex


def _literal(expression: str) -> Any:
    """The value of an expression without variables; None if it fails."""
    value = _compiled(expression, are_types_checked=False).eval(data={})
    return None if value.type().name() == "ERROR" else value.plain_value()


_INTEGER = re.compile(r"Integer value '(-?\d+)' out of range")
_ERROR_LINE = re.compile(r"^(?:ERROR: )?<input>:(\d+):(\d+): (.*)$", re.MULTILINE)


def explained(text: str) -> str:
    """The text of an error of CEL, on one line."""
    if "Iteration budget exceeded" in text:
        return "its macros would look at too many values"
    if "max recursion depth" in text:
        return "more than 32 operators or brackets are inside each other"
    if found := _INTEGER.search(text):
        return f"the number {found[1]} is none of CEL, whose integers go from -2^63 to 2^64-1"
    if "basic_string" in text:
        return "the event has text that is not Unicode"
    text = re.sub(r"^(?:[A-Z_]+: )+|\s*\[[A-Z_]+\]$", "", text)
    if found := _ERROR_LINE.search(text):
        what = re.sub(r" expecting \{.*\}", "", found[3]).replace("mismatched input '<EOF>'", "it ends too early")
        text = f"{what} (line {found[1]}, column {found[2]})"
    text = text.splitlines()[0] if text else "it could not be evaluated"
    if "matching overload" in text and "int" in text and "double" in text:
        text += "; CEL converts no numbers: write 1.0 instead of 1, or double(…), int(…)"
    return text


_used: WeakValueDictionary[str, EventFilter] = WeakValueDictionary()
"""The filters that streams use, and those that are kept."""
_kept: CompiledCache[EventFilter] = CompiledCache(KEPT_BYTES_MAX)


def event_filter(expression: str) -> EventFilter:
    """The filter of an expression, compiled once while it is in use; raises as `EventFilter` does."""
    found = _kept.get(expression)
    if found is None:
        # A filter in use by streams is not compiled a second time for others, and stays the same object for them.
        found = _used.get(expression)
        if found is None:
            found = _used[expression] = EventFilter(expression)
        _kept.put(expression, found, found.bytes_)
    return found


# --- Explains why an event matches a filter, or does not: the value of each part of the expression ---

PARTS_MAX = 10
"""The maximum number of parts; the rest of a longer expression is one part."""
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


def parts(expression: str) -> Sequence[str]:
    """The operands of `||` at the top of an expression, or else of `&&`; the expression itself if there is neither."""
    for operator in ("||", "&&"):
        found = [*_split(expression, operator)]
        if len(found) > 1:
            return found
    return [expression.strip()]


class ExplainedFilter:
    """A filter and its parts, compiled once and not shared: a compiled filter serves one thread at a time.

    Args:
        expression: the expression, as for an `EventFilter`.

    Raises:
        Invalid: it is not a filter.
    """

    def __init__(self, expression: str) -> None:
        checked_filter(expression)
        self._filter = EventFilter(expression)
        self._parts = [(part, _filter_of(part)) for part in parts(expression)]

    def outcome(self, event: bytes) -> FilterResult:
        """Whether an event, given as JSON, is wanted; raises FilterTooSlow."""
        return self._filter.outcome(event)

    def explain(self, event: bytes) -> list[tuple[str, FilterResult | None]]:
        """The parts of the expression with their results; None for a part that is not a filter by itself."""
        return [(part, None if compiled is None else compiled.outcome(event)) for part, compiled in self._parts]


def _filter_of(part: str) -> EventFilter | None:
    try:
        return EventFilter(part)
    except Invalid:
        return None


def _split(expression: str, operator: str) -> Iterator[str]:
    depth, piece, count = 0, "", 1
    for token in tokens(expression, spaces=True):
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth == 0 and token.text == operator and count < PARTS_MAX:
            yield piece.strip()
            piece, count = "", count + 1
        else:
            piece += token.text
    yield piece.strip()
