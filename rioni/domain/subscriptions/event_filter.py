"""Filters: a CEL expression about an event, which decides whether a subscription gets it.

The language is https://cel.dev: `event.amount > 100 && metadata.flow_id != ''`. An expression comes from strangers and
runs for every event, so its cost must grow with the event's size and no faster. CEL has no loops but its macros; what
could make them quadratic, in time or in memory, is refused here by a look at the tokens.
`rioni.domain.subscriptions.filter_cost` bounds what the rest takes.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from jsonschema_rs import Draft4Validator, ValidationError
from msgspec import UNSET

from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.errors import FilterTooSlow, Invalid
from rioni.domain.schemas.patterns import PATTERN_BYTES_MAX, compiled_bytes, options_for, program_bytes
from rioni.domain.subscriptions.filter_cost import EVALUATION_NS_MAX, FilterCost, has_more_values


CHARACTERS_MAX = 2_000
KEPT_BYTES_MAX = 32_000_000
"""Of compiled filters that no stream uses at the moment."""
FILTER_BYTES, FILTER_BYTES_PER_CHARACTER = 3_000, 60
"""PERF: of a compiled filter, beside its patterns."""
MACROS = frozenset({"all", "exists", "exists_one"})
FUNCTIONS = frozenset(
    {
        *("bool", "contains", "double", "duration", "endsWith", "has", "int", "max", "min", "size", "startsWith"),
        *("string", "timestamp", "uint"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear"),
        *("getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
    }
)
_LITERALS = frozenset({"true", "false", "null", "in"})
_FAILURES = (LookupError, ValueError, TypeError, ArithmeticError, RuntimeError)
"""Errors that CEL raises if an event lacks what an expression needs."""


class EventFilter:
    """A compiled expression.

    Args:
        expression: CEL over `event`, the whole event, and `metadata`, short for `event.metadata`; true or false.

    Raises:
        Invalid: it is not such an expression, or too expensive for events of ordinary size.
    """

    def __init__(self, expression: str) -> None:
        # PERF: the import takes 0.3 s, because the package brings its command line along.
        import cel  # noqa: PLC0415

        if len(expression) > CHARACTERS_MAX:
            raise _invalid(f"it has {len(expression)} characters, more than {CHARACTERS_MAX}")
        try:
            cel.compile(expression)
            reading = _Reading(expression, cel.evaluate)
            self._program = cel.compile(reading.source)
        except ValueError as ex:
            raise _invalid(str(ex)) from ex
        self.source = reading.source
        self._context = cel.Context(functions=reading.functions)
        self.cost = reading.cost
        if reason := self.cost.refusal:
            raise _invalid(reason)
        # PERF: what is not asked for is skipped, not decoded: 1 µs instead of 5 for an event of 1 kB.
        self._members = {f"member_{number}": member for number, member in enumerate(sorted(reading.members))}
        fields = [(field, msgspec.Raw | msgspec.UnsetType, UNSET) for field in self._members]
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Asked", fields, rename=self._members))
        self._check_result()

    def matches(self, event: bytes) -> bool:
        """Whether the event is wanted. PERF: 4 µs for one member, 15 µs with the metadata; 5 ms at most.

        What can't be evaluated does not match, as where the event lacks a member: `has(event.member)` asks for that. An
        event of which too much would have to be looked at is wanted: nothing is dropped unseen.

        Args:
            event: its JSON.

        Raises:
            FilterTooSlow: it took longer than an accepted filter may, twice.
        """
        if len(event) > self.cost.event_bytes_max:
            return True
        asked = self._decoder.decode(event)
        raw = {name: value for field, name in self._members.items() if (value := getattr(asked, field)) is not UNSET}
        size = sum(map(len, raw.values()))
        values_max = self.cost.values_max(len(event), size)
        if values_max <= 0:
            return True
        members = {name: msgspec.json.decode(value) for name, value in raw.items()}
        # PERF: the values of small events need not be counted: each takes a byte, and another one behind it.
        if size <= values_max:
            return self._result(members)
        return has_more_values(members, values_max) or self._timed_result(members)

    @property
    def bytes_(self) -> int:
        """An estimate of the memory that it takes."""
        patterns = compiled_bytes(self.cost.patterns, self.cost.programs_bytes)
        return FILTER_BYTES + FILTER_BYTES_PER_CHARACTER * len(self.source) + patterns

    def _timed_result(self, members: dict[str, Any]) -> bool:
        """Evaluate with a time check: CEL can't be interrupted, so a filter that exceeds its bound is not run again."""
        for _ in range(2):
            begin_ns = time.thread_time_ns()
            result = self._result(members)
            if time.thread_time_ns() - begin_ns <= EVALUATION_NS_MAX:
                return result
        raise FilterTooSlow

    def _result(self, members: dict[str, Any]) -> bool:
        try:
            return self._evaluate(members) is True
        except _FAILURES:
            return False

    def _evaluate(self, members: dict[str, Any]) -> Any:
        self._context.update({"event": members, "metadata": members.get("metadata", {})})
        return self._program.execute(self._context)

    def _check_result(self) -> None:
        """Reject expressions that are not boolean even without an event."""
        try:
            result = self._evaluate({})
        except _FAILURES:
            return
        if not isinstance(result, bool):
            raise _invalid(f"it has to be true or false, and is {result!r}")


_used: WeakValueDictionary[str, EventFilter] = WeakValueDictionary()
"""Those that streams use, and those that are kept."""
_kept: CompiledCache[EventFilter] = CompiledCache(KEPT_BYTES_MAX)


def event_filter(expression: str) -> EventFilter:
    """The filter of an expression, compiled once while it is in use; raises as `EventFilter` does."""
    found = _kept.get(expression)
    if found is None:
        # What streams use is not compiled a second time for others, and stays the same object for them.
        found = _used.get(expression)
        if found is None:
            found = _used[expression] = EventFilter(expression)
        _kept.put(expression, found, found.bytes_)
    return found


def _invalid(what: str) -> Invalid:
    return Invalid(f"The filter can't be used: {what}")


# --- reading an expression that CEL has accepted ---


class _Token(NamedTuple):
    kind: str
    text: str


_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|//[^\n]*)+)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<number>\d[\w.]*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<mark>[=!<>]=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_END = _Token("end", "")


def tokens(expression: str, *, spaces: bool = False) -> Iterator[_Token]:
    """What an expression is made of, with white space and comments or without.

    Raises:
        Invalid: a string is written in a form that filters may not have.
    """
    before = _END
    for match in _TOKEN.finditer(expression):
        assert match.lastgroup is not None, "one of the groups has matched"
        token = _Token(match.lastgroup, match[0])
        if token.text in ('"', "'", "`") or (token.kind == "string" and before.kind in ("name", "string")):
            raise _invalid("strings are written 'so' or \"so\", without prefix and without triple quotes")
        before = token
        if spaces or token.kind != "space":
            yield token


class _Reading:
    """Analyses the tokens of an expression; raises Invalid for forbidden ones."""

    def __init__(self, expression: str, evaluate: Callable[[str], Any]) -> None:
        self.members: set[str] = set()
        """Of the event."""
        self.functions: dict[str, Callable[[Any], bool]] = {}
        """For each pattern the function that stands in its place."""
        self._tokens = [_END, _END, *tokens(expression), _END, _END, _END]
        self._literal = evaluate
        self._scopes: list[str | None] = []
        """For each open bracket the variable of its macro, None where it is not a macro's."""
        self._programs_bytes = self._steps = self._references = self._lists = 0
        self._grows = False
        """Whether values can be built that hold members of the event more than once."""
        self._pattern_options = options_for(sum(token.text == "matches" for token in self._tokens))
        for index in range(2, len(self._tokens) - 3):
            self._read(index)
        self.source = " ".join(token.text for token in self._tokens if token is not _END)

    @property
    def cost(self) -> FilterCost:
        """What the expression may take."""
        return FilterCost(
            tokens=sum(token is not _END for token in self._tokens),
            steps=self._steps,
            growth=self._references if self._grows else 1,
            patterns=len(self.functions),
            programs_bytes=self._programs_bytes,
        )

    def _read(self, index: int) -> None:
        kind, text = self._tokens[index]
        before, behind = self._tokens[index - 1], self._tokens[index + 1]
        # Constants, and what separates or ends, look at nothing of the event; in macros they happen for each value.
        if any(self._scopes) or kind == "name" or (kind == "mark" and text not in ",)]}"):
            self._steps += 1
        if kind == "mark" and text in "([{":
            is_macro = text == "(" and before.text in MACROS
            is_index = text == "[" and (before.text in (")", "]") or (before.kind == "name" and before.text != "in"))
            self._lists += not is_macro and not is_index and text != "("
            self._scopes.append(behind.text if is_macro else None)
        elif kind == "mark" and text in ")]}":
            self._scopes.pop()
        elif text == "+":
            self._grows = True
        elif kind == "name" and behind.text == "(":
            self._read_call(index)
        elif kind == "name" and before.text != "." and text not in _LITERALS:
            self._read_variable(index)

    def _read_call(self, index: int) -> None:
        before, name = self._tokens[index - 1], self._tokens[index].text
        if name == "matches" and before.text == ".":
            self._read_pattern(index)
        elif name in MACROS and before.text == ".":
            # Of what stands in the event every part is looked at once; lists of the expression would multiply.
            if self._tokens[index - 2].kind != "name":
                raise _invalid(f"{name} needs the name of a list in front: event.items.{name}(item, ...)")
        elif name not in FUNCTIONS:
            raise _invalid(f"there is no function {name}")

    def _read_pattern(self, index: int) -> None:
        """Let the patterns be those of schemas: compiled once, and linear."""
        _, pattern, behind = self._tokens[index + 1 : index + 4]
        if pattern.kind != "string" or behind.text != ")":
            raise _invalid("the pattern of matches has to be a string: event.name.matches('^a')")
        text = self._literal(pattern.text)
        if len(text.encode(errors="surrogatepass")) > PATTERN_BYTES_MAX:
            raise _invalid(f"a pattern has more than {PATTERN_BYTES_MAX} bytes")
        try:
            matches = Draft4Validator(
                {"type": "string", "pattern": text}, pattern_options=self._pattern_options
            ).is_valid
        except (ValueError, ValidationError) as ex:
            raise _invalid(f"the pattern {pattern.text} is not a regular expression, or too large") from ex
        name = f"matches_{len(self.functions)}"
        self.functions[name] = matches
        self._programs_bytes += program_bytes(text)
        self._tokens[index] = _Token("name", name)
        self._tokens[index + 2] = _END

    def _read_variable(self, index: int) -> None:
        self._references += 1
        self._grows = self._grows or self._lists > 0
        name, behind, member, after = (token.text for token in self._tokens[index : index + 4])
        variable = next((scope for scope in reversed(self._scopes) if scope), None)
        if variable is not None:
            if name != variable:
                raise _invalid(f"a macro can ask for nothing but its own variable {variable}, not for {name}")
            if name in ("event", "metadata"):
                raise _invalid(f"the variable of a macro needs a name of its own, not {name}")
        elif name == "metadata":
            self.members.add(name)
        elif name == "event" and behind == "." and self._tokens[index + 2].kind == "name":
            self.members.add(member)
        elif name == "event" and behind == "[" and self._tokens[index + 2].kind == "string" and after == "]":
            self.members.add(self._literal(member))
        elif name == "event":
            raise _invalid("name the member of the event that you ask for: event.member or event['member']")
        else:
            raise _invalid(f"{name} is unknown; there are event and metadata")
