"""Differences of two texts are those of the standard library, and take a bounded number of steps whatever the texts."""

import difflib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rioni.console import differences
from rioni.console.differences import CONTEXT, LINES_MAX, STEPS_MAX, difference


LINES = st.lists(st.sampled_from(["{", "}", "a", "b", "c"]), max_size=40)


@given(LINES, LINES)
def test_short_texts_differ_as_the_standard_library_says(old, new):
    lines = [*difflib.unified_diff(old, new, lineterm="", n=CONTEXT)][2:]
    expected = [("@", line.strip("@ ")) if line.startswith("@@") else (line[:1], line[1:]) for line in lines]
    assert [(each["sign"], each["text"]) for each in difference("\n".join(old), "\n".join(new))] == expected


def growing(count):
    """Lines whose longest match is always at the end of what is left: the library begins again for each."""
    lines, number = [], 0
    while len(lines) < count:
        number += 1
        lines += [str(each) for each in range(number % 97)]
    return lines[:count]


HOSTILE = {
    "growing": (growing(LINES_MAX), growing(LINES_MAX)[::-1]),
    "cycles": ([str(n % 101) for n in range(LINES_MAX)], [str(-n % 101) for n in range(LINES_MAX)]),
    "backwards": ([str(n) for n in range(LINES_MAX)], [str(n) for n in reversed(range(LINES_MAX))]),
    "pairs": ([str(n * 7 % 103) for n in range(LINES_MAX)], [str(n * 11 % 103) for n in range(LINES_MAX)]),
    "blocks": ([f"{n // 20 * 7 % 100}" for n in range(LINES_MAX)], [f"{n % 100}" for n in range(LINES_MAX)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_that_are_hard_to_compare_take_a_bounded_number_of_steps(name):
    old, new = HOSTILE[name]
    assert steps_of(old, new) <= STEPS_MAX
    shown = difference("\n".join(old), "\n".join(new))
    assert {each["text"] for each in shown if each["sign"] in "- "} <= {*old}
    assert {each["text"] for each in shown if each["sign"] in "+ "} <= {*new}


def test_without_the_bound_some_of_them_would_take_more(monkeypatch):
    monkeypatch.setattr(differences, "STEPS_MAX", 10**12)
    assert max(steps_of(*texts) for texts in HOSTILE.values()) > 2 * STEPS_MAX


def steps_of(old, new):
    matcher = differences.BoundedMatcher(old, new)
    matcher.get_matching_blocks()
    return matcher.steps
