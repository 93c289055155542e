"""Bounds the time that a CEL expression may take for one event.

The library evaluates with the interpreter's lock held and can't be interrupted (see the page on filters in
docs/decisions), so whatever is evaluated must be cheap. The bound is the product of what may happen and what it may
happen to: each token (operator, function, literal, name) takes its time, and each that reads the event looks once at
everything that the expression can reach. `benchmarks/filters.py` compares it with the clock.
"""

from typing import Any, NamedTuple

from rioni.domain.schemas.patterns import STATE_NS


EVALUATION_NS_MAX = 5_000_000
"""Time limit of one evaluation."""
EVENT_BYTES_MAX = 65_536
"""Of the members that an expression asks for."""
TOKEN_NS = 2_500
"""PERF: of the thread, for each token, however small the event is."""
STEP_NS = 150
"""PERF: for a value in the event and a step of the expression."""
PATTERN_NS = 30_000
"""PERF: compiling a short pattern, which happens whenever it is evaluated."""
PROGRAM_BYTE_NS = 12
"""PERF: the same, for each byte of the compiled pattern."""
SEARCH_NS = 0.02
"""PERF: looking for a text of the event in another one, for the product of their lengths."""
VALUE_NS = 1_000
"""PERF: handing one value to CEL; numbers take a fifth of that."""
BYTE_NS = 16
"""PERF: decoding a byte, looking for what CEL has not, and handing it over."""
STEP_BYTE_NS = 0.8
"""PERF: for a byte in the event and a step of the expression: comparing, copying, searching."""
SKIPPED_BYTE_NS = 0.7
"""PERF: for a byte of members that an expression does not ask for."""

VALUES_ORDINARY, BYTES_ORDINARY = 50, 500
"""Of the members that an expression asks for, in an ordinary event: it must be possible to evaluate those."""


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
    """Those in macros, which are compiled for each value."""

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
        """How many values the members may have that are asked for, so that the bound holds; not above zero for none.

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
