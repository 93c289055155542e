"""Reads an expression of a filter: what of the event it looks at, what it may cost, and what filters may not have."""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jsonschema_rs import Draft4Validator, ValidationError

from rioni.domain.errors import Invalid
from rioni.domain.schemas.patterns import PATTERN_BYTES_MAX, STATE_NS, options_for, program_bytes


# --- Bounds the time that a CEL expression may take for one event ---
#
# The library evaluates with the interpreter's lock held and can't be interrupted (see the page on filters in
# docs/decisions), so whatever is evaluated must be cheap. The bound is the product of the operations and of the data
# they apply to: each token (operator, function, literal, name) takes its time, and each that reads the event reads once
# everything that the expression can reach. `benchmarks/filters.py` compares it with the clock.

EVALUATION_NS_MAX = 5_000_000
"""Time limit of one evaluation."""
EVENT_BYTES_MAX = 65_536
"""The maximum size of the members that an expression asks for."""
TOKEN_NS = 2_500
"""PERF: time of the thread for each token, however small the event is."""
STEP_NS = 150
"""PERF: time for a value in the event and a step of the expression."""
PATTERN_NS = 30_000
"""PERF: time for compiling a short pattern, which happens whenever it is evaluated."""
PROGRAM_BYTE_NS = 12
"""PERF: time for compiling a pattern, for each byte of the compiled pattern."""
SEARCH_NS = 0.02
"""PERF: time for searching a text of the event in another one, for the product of their lengths."""
VALUE_NS = 1_000
"""PERF: time for passing one value to CEL; numbers take a fifth of that."""
BYTE_NS = 16
"""PERF: time for decoding a byte, checking that CEL can represent it, and passing it on."""
STEP_BYTE_NS = 0.8
"""PERF: time for a byte in the event and a step of the expression: comparing, copying, searching."""
SKIPPED_BYTE_NS = 0.7
"""PERF: time for a byte of members that an expression does not use."""

VALUES_ORDINARY, BYTES_ORDINARY = 50, 500
"""The number and size of the members that an expression asks for, in an ordinary event: evaluating it must be
possible."""


class FilterCost(NamedTuple):
    """Cost of an expression; all times are nanoseconds of CPU time on a slow machine."""

    tokens: int
    """How many there are."""
    steps: int
    """How many of them look at something of the event."""
    growth: int
    """How many times as large as the event a value of the expression may be."""
    searches: int = 0
    """How many of them look for a text of the event in another one."""
    patterns: tuple[int, ...] = ()
    """The size in bytes of each compiled pattern."""
    inner_patterns: tuple[int, ...] = ()
    """The size in bytes of each pattern in a macro, which is compiled for each value."""

    @property
    def refusal(self) -> str:
        """Why the expression can't be accepted; empty if it can."""
        took_ns = self.evaluation_ns(VALUES_ORDINARY, BYTES_ORDINARY)
        if took_ns <= EVALUATION_NS_MAX:
            return ""
        return (
            f"it is too expensive: for {VALUES_ORDINARY} values of {BYTES_ORDINARY} bytes it may take "
            f"{took_ns / 1e6:.0f} ms, more than {EVALUATION_NS_MAX / 1e6:.0f}. Use fewer operators, patterns with "
            "fewer repetitions, and no + or lists of members"
        )

    @property
    def event_bytes_max(self) -> int:
        """The size of an event in which members can be found in time."""
        return round(EVALUATION_NS_MAX / SKIPPED_BYTE_NS)

    def values_max(self, event_bytes: int, asked_bytes: int) -> int:
        """How many values the members that the expression uses may have within the limit; not above zero for none.

        Args:
            event_bytes: the size of the event.
            asked_bytes: the size of those members.
        """
        if asked_bytes > EVENT_BYTES_MAX:
            return 0
        left_ns = EVALUATION_NS_MAX - event_bytes * SKIPPED_BYTE_NS - self.evaluation_ns(0, asked_bytes)
        return int(left_ns / self._value_ns)

    def evaluation_ns(self, values: int, asked_bytes: int) -> float:
        """The bound for members of this size."""
        programs_bytes = sum(self.patterns) + sum(self.inner_patterns)
        byte_ns = BYTE_NS + self.growth * (STEP_BYTE_NS * self.steps + STATE_NS * programs_bytes)
        # Two texts whose lengths add up to that have the largest product if they are equally long.
        search_ns = self.searches * SEARCH_NS * (self.growth * asked_bytes / 2) ** 2
        tokens_ns = TOKEN_NS * self.tokens + _compiling_ns(self.patterns)
        return tokens_ns + self._value_ns * values + byte_ns * asked_bytes + search_ns

    @property
    def _value_ns(self) -> float:
        return VALUE_NS + (STEP_NS * self.steps + _compiling_ns(self.inner_patterns)) * self.growth


def _compiling_ns(patterns: tuple[int, ...]) -> float:
    return PATTERN_NS * len(patterns) + PROGRAM_BYTE_NS * sum(patterns)


def has_more_values(value: Any, values_max: int) -> bool:
    """Whether a value holds more values than that, names of members included; looks at no more of them."""
    stack, left = [value], values_max
    while stack:
        inner = stack.pop()
        left -= 2 * len(inner) if isinstance(inner, dict) else len(inner)
        if left < 0:
            return True
        each_value = inner.values() if isinstance(inner, dict) else inner
        stack.extend(each for each in each_value if isinstance(each, dict | list))
    return False


# Reads an expression of a filter: the parts of the event that it reads, what that may cost, and constructs that filters
# may not have.

CHARACTERS_MAX = 2_000
MACROS = frozenset({"all", "exists", "exists_one"})
NO_MEMBER = "name the member of the event that you ask for: event.member or event['member']"
_TIME_PARTS = frozenset(
    {
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear"),
        *("getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
    }
)
_TYPES = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"})
FUNCTIONS = _TIME_PARTS | {
    *("bool", "bytes", "contains", "double", "duration", "dyn", "endsWith", "has", "int", "size", "startsWith"),
    *("string", "timestamp", "type", "uint"),
}
_CONVERSIONS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_LITERALS = frozenset({"true", "false", "null", "in"})
_ZONE = re.compile(r"[+-]?\d\d:\d\d|[A-Za-z_]+(?:[/+-][A-Za-z0-9_]+)*")
"""An offset, or a name of IANA's: others would be names of files."""


def invalid_filter(what: str) -> Invalid:
    """The error for a filter that can't be used."""
    return Invalid(f"The filter can't be used: {what}")


class Token(NamedTuple):
    """A piece of an expression."""

    kind: str
    text: str


_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|//[^\n]*)+)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\w*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<mark>[=!<>]=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_END = Token("end", "")


def tokens(expression: str, *, spaces: bool = False) -> Iterator[Token]:
    """Yield the tokens of an expression, with white space and comments or without.

    Raises:
        Invalid: a string is written in a form that filters may not have.
    """
    before = _END
    for match in _TOKEN.finditer(expression):
        assert match.lastgroup is not None, "one of the groups has matched"
        token = Token(match.lastgroup, match[0])
        if token.text in ('"', "'", "`") or (token.kind == "string" and before.kind in ("name", "string")):
            raise invalid_filter("strings are written 'so' or \"so\", without prefix and without triple quotes")
        before = token
        if spaces or token.kind != "space":
            yield token


class Reading:
    """Analyses the tokens of an expression that CEL has accepted.

    Args:
        expression: the text.
        evaluate: gives the value of an expression without variables, None if it has none.

    Raises:
        Invalid: it has a form that filters may not have.
    """

    def __init__(self, expression: str, evaluate: Callable[[str], Any]) -> None:
        self.members: set[str] = set()
        """The members of the event that the expression reads."""
        self.calls_event = False
        self._tokens = [_END, _END, *tokens(expression), _END, _END, _END]
        self._literal = evaluate
        self._scopes: list[str | None] = []
        """The variable of each open bracket's macro, None if it is not a macro's."""
        self._patterns: list[int] = []
        self._inner_patterns: list[int] = []
        """Bytes of each compiled pattern, and of each in a macro."""
        self._searches = self._steps = self._references = self._lists = 0
        self._grows = False
        """Whether values can be built that hold members of the event more than once."""
        self._pattern_options = options_for(sum(token.text == "matches" for token in self._tokens))
        for index in range(2, len(self._tokens) - 3):
            self._read(index)

    @property
    def cost(self) -> FilterCost:
        """The maximum cost of the expression."""
        return FilterCost(
            tokens=sum(token is not _END for token in self._tokens),
            steps=self._steps,
            growth=self._references if self._grows else 1,
            searches=self._searches,
            patterns=tuple(self._patterns),
            inner_patterns=tuple(self._inner_patterns),
        )

    def _read(self, index: int) -> None:
        kind, text = self._tokens[index]
        before, behind = self._tokens[index - 1], self._tokens[index + 1]
        # Constants, separators and closing marks read nothing of the event; in macros they are evaluated for each
        # value.
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
        elif kind == "number" and _is_infinite(text):
            raise invalid_filter(f"the number {text} is too large for a double")
        elif kind == "name" and behind.text == "(":
            self._read_call(index)
        elif kind == "name" and before.text != "." and text not in _LITERALS:
            self._read_variable(index)

    def _read_call(self, index: int) -> None:
        before, name = self._tokens[index - 1], self._tokens[index].text
        if name == "matches" and before.text == ".":
            self._read_pattern(index)
        elif name in MACROS and before.text == ".":
            # Each part of the event is read once; lists in the expression would multiply.
            if self._tokens[index - 2].kind != "name":
                raise invalid_filter(f"{name} needs the name of a list in front: event.items.{name}(item, ...)")
        elif name not in FUNCTIONS:
            raise invalid_filter(f"there is no function {name}")
        elif name in _TIME_PARTS and self._tokens[index + 2].text != ")":
            self._read_zone(index)
        elif name in _CONVERSIONS and before.text != ".":
            self._read_conversion(name, *self._tokens[index + 2 : index + 4])
        elif name == "contains" and self._tokens[index + 2].kind != "string":
            self._searches += 1

    def _read_pattern(self, index: int) -> None:
        """Let the patterns be those of schemas: compiled once, and linear."""
        _, pattern, behind = self._tokens[index + 1 : index + 4]
        if pattern.kind != "string" or behind.text != ")":
            raise invalid_filter("the pattern of matches has to be a string: event.name.matches('^a')")
        text = self._literal(pattern.text)
        if len(text.encode(errors="surrogatepass")) > PATTERN_BYTES_MAX:
            raise invalid_filter(f"a pattern has more than {PATTERN_BYTES_MAX} bytes")
        try:
            Draft4Validator({"type": "string", "pattern": text}, pattern_options=self._pattern_options)
        except (ValueError, ValidationError) as ex:
            raise invalid_filter(f"the pattern {pattern.text} is not a regular expression, or too large") from ex
        # CEL has the expressions of RE2, which are not quite those of JSON Schema.
        if self._literal(f"''.matches({pattern.text})") is None:
            raise invalid_filter(f"the pattern {pattern.text} is not a regular expression of RE2, or too large")
        (self._inner_patterns if any(self._scopes) else self._patterns).append(program_bytes(text))

    def _read_conversion(self, name: str, argument: Token, behind: Token) -> None:
        if argument.kind in ("string", "number") and behind.text == ")":
            conversion = f"{name}({argument.text})"
            if self._literal(conversion) is None:
                raise invalid_filter(
                    f"{conversion} always fails; see the forms that {name} takes in reference values-cel"
                )

    def _read_zone(self, index: int) -> None:
        _, zone, behind = self._tokens[index + 1 : index + 4]
        if zone.kind != "string" or behind.text != ")":
            raise invalid_filter("a time zone has to be a string: timestamp(event.at).getHours('Europe/Berlin')")
        name = self._literal(zone.text)
        if not _ZONE.fullmatch(name) or self._literal(f"timestamp(0).getHours({zone.text})") is None:
            raise invalid_filter(f"the time zone {zone.text} is not known: write 'Europe/Berlin' or '+02:00'")

    def _read_variable(self, index: int) -> None:
        self._references += 1
        self._grows = self._grows or self._lists > 0
        name, behind, member, after = (token.text for token in self._tokens[index : index + 4])
        if name in _TYPES:
            return
        variable = next((scope for scope in reversed(self._scopes) if scope), None)
        if variable is not None:
            if name != variable:
                raise invalid_filter(f"a macro can ask for nothing but its own variable {variable}, not for {name}")
            if name in ("event", "metadata"):
                raise invalid_filter(f"the variable of a macro needs a name of its own, not {name}")
        elif name == "metadata":
            self.members.add(name)
        elif name == "event" and behind == "." and self._tokens[index + 2].kind == "name":
            self.members.add(member)
            self.calls_event = self.calls_event or after == "("
        elif name == "event" and behind == "[" and self._tokens[index + 2].kind == "string" and after == "]":
            self.members.add(self._literal(member))
        elif name == "event":
            raise invalid_filter(NO_MEMBER)
        else:
            raise invalid_filter(f"{name} is unknown; there are event and metadata")


def _is_infinite(number: str) -> bool:
    try:
        return math.isinf(float(number))
    except ValueError:
        return False  # as 0xFF and 12u
