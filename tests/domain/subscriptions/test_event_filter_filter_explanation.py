"""The parts of a filter, and their values for an event."""

import pytest

from rioni.domain.subscriptions.event_filter import PARTS_MAX, ExplainedFilter, parts


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("event.a > 1", ["event.a > 1"]),
        ("event.a > 1 && event.b == 'x && y'", ["event.a > 1", "event.b == 'x && y'"]),
        ("event.a > 1 && event.b > 1 || event.c > 1", ["event.a > 1 && event.b > 1", "event.c > 1"]),
        ("(event.a > 1 || event.b > 1) && has(event.c)", ["(event.a > 1 || event.b > 1)", "has(event.c)"]),
        (" && ".join(["event.a > 1"] * 30), ["event.a > 1"] * (PARTS_MAX - 1) + [" && ".join(["event.a > 1"] * 21)]),
    ],
)
def test_parts(expression, found):
    assert parts(expression) == found


def test_each_part_has_its_value():
    found = ExplainedFilter("event.a > 1 && has(event.b) && event.c").explain(b'{"a": 2, "c": true}')
    assert found == [("event.a > 1", (True, "")), ("has(event.b)", (False, "")), ("event.c", (True, ""))]


def test_each_part_that_fails_says_why():
    found = ExplainedFilter("event.a > 1 || event.b").explain(b'{"a": "x"}')
    assert found == [
        ("event.a > 1", (False, "No matching overloads found : _>_(string, int64)")),
        ("event.b", (False, 'Key not found in map : "b"')),
    ]
