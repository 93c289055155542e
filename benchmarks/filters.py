"""Compares what filters may take at most (`rioni.domain.subscriptions.filter_reading`) with what they take.

For each expression and each shape of event, the largest event that is evaluated at all: its predicted and measured time
of the processor, in milliseconds. A ratio above 1 says that a constant of the model is too small for this machine.

    python benchmarks/filters.py
"""

import time
from collections.abc import Callable
from typing import Any

import orjson

from rioni.domain.errors import FilterTooSlow, Invalid
from rioni.domain.subscriptions.event_filter import EventFilter
from rioni.domain.subscriptions.filter_reading import EVENT_BYTES_MAX


SHAPES: dict[str, Callable[[int], Any]] = {
    "text": lambda size: "x" * size,
    "escapes": lambda size: "\n" * (size // 2),
    "numbers": lambda size: [1] * (size // 2),
    "texts": lambda size: ["a"] * (size // 4),
    "empty objects": lambda size: [{}] * (size // 3),
    "objects": lambda size: [{"a": 1, "b": "c"}] * (size // 16),
    "one object": lambda size: {f"{number:x}": 1 for number in range(size // 8)},
    "lists": lambda size: [[[[]]]] * (size // 7),
}
EXPRESSIONS = {
    "one member": "event.a == 1",
    "two members": "event.a == event.b",
    "sum": "size(event.a + event.a) > 0",
    "sum of 5": "size(" + " + ".join(["event.a"] * 5) + ") > 0",
    "sum of 240": "size(" + "+".join(["event.a"] * 240) + ")>0",
    "list of 5": "size([" + ", ".join(["event.a"] * 5) + "]) > 0",
    "list of 240": "size([" + ",".join(["event.a"] * 240) + "])>0",
    "nested lists": "size([[[[event.a, event.a], event.a], event.a], event.a]) > 0",
    "objects": "size({'a': event.a, 'b': {'c': event.a}}) > 0",
    "ternaries": "(event.a == 1 ? event.a : event.b) == (event.b == 1 ? event.a : event.b)",
    "all": "event.a.all(x, true)",
    "exists": "event.a.exists(x, x == 'q' || x == 'r' || size(string(x)) == 7)",
    "exists with a list": "event.a.exists(x, x in [2, 3, 4, 5, 6, 7, 8, 9, 'a', 'b', 'c', 'd'])",
    "sums in a macro": "event.a.exists(x, size(x + x + x + x) > 1000000)",
    "nested macros": "event.a.exists(x, x.exists(y, y.exists(z, z == 1)))",
    "missing members": "event.a.all(x, x.b.c == 1 || true)",
    "pattern": "event.a.matches('^(a|b)*c')",
    "pattern in a macro": "event.a.exists(x, x.matches('y'))",
    "large pattern": "event.a.matches('(x{0,200}y){5}')",
    "in": "'q' in event.a",
    "in a long list": "event.a in [" + ",".join(["'x'"] * 470) + "]",
    "in a list of members": "'q' in [" + ",".join(["event.a"] * 8) + "]",
    "many calls": " || ".join(["size(event.a) == 7"] * 60),
    "indices": "event.a" + "[0]" * 100 + " == 1",
    "a long list in a macro": "event.a.exists(x, x in [" + ",".join(["'x'"] * 60) + "])",
    "negations": "!" * 500 + "(event.a == 1)",
    "contains": "event.a.contains('xy') || event.a.startsWith('xy') || event.a.endsWith('yx')",
    "comparisons": " && ".join(["event.a == event.b"] * 20),
    "numbers": " && ".join(["1 == 1"] * 60),
    "time": "timestamp(event.a) > timestamp(event.b) || duration(event.a) > duration('1h')",
    "conversions": "int(event.a) == 1 || double(event.a) == 1.0 || string(event.a) == '' || bool(event.a)",
}


def main() -> None:
    """Print a table."""
    worst = 0.0
    for name, expression in EXPRESSIONS.items():
        try:
            wanted = EventFilter(expression)
        except Invalid as ex:
            print(f"{name:20} refused: {str(ex)[:90]}")
            continue
        for shape, make in SHAPES.items():
            event, predicted_ms = largest(wanted, make)
            measured_ms = min(measure_ms(wanted, event) for _ in range(3))
            worst = max(worst, measured_ms / predicted_ms)
            print(f"{name:20} {shape:14} {len(event):7} bytes {predicted_ms:6.2f} {measured_ms:6.2f}"
                  f" {measured_ms / predicted_ms:5.2f}")  # fmt: skip
    print(f"worst ratio {worst:.2f}")


def largest(wanted: EventFilter, make: Callable[[int], Any]) -> tuple[bytes, float]:
    """The largest event of a shape that is evaluated, and the bound on its time."""
    size = EVENT_BYTES_MAX
    while size > 10:
        value = make(size)
        event = orjson.dumps({"a": value, "b": value})
        asked = len(event) if "event.b" in str(wanted.source) else len(event) // 2
        values_max = wanted.cost.values_max(len(event), asked)
        values = values_of({"a": value, "b": value} if asked == len(event) else {"a": value})
        if values <= values_max:
            return event, wanted.cost.evaluation_ns(values, asked) / 1e6
        size = size * 4 // 5
    raise AssertionError("an accepted filter evaluates small events")


def values_of(value: Any) -> int:
    """How many values there are inside, as `has_more_values` counts."""
    if isinstance(value, dict):
        return 2 * len(value) + sum(map(values_of, value.values()))
    return len(value) + sum(map(values_of, value)) if isinstance(value, list) else 0


def measure_ms(wanted: EventFilter, event: bytes) -> float:
    """The time of the processor that one evaluation takes."""
    begin_ns = time.thread_time_ns()
    try:
        wanted.matches(event)
    except FilterTooSlow:
        print("too slow:", end=" ")
    return (time.thread_time_ns() - begin_ns) / 1e6


if __name__ == "__main__":
    main()
