"""The tables of values in filters.

Reference values-cel#values values-cel#results values-cel#strings values-cel#numbers values-cel#booleans-and-null
values-cel#members-and-lists values-cel#conversions-and-types values-cel#times-and-durations values-cel#notes
"""

import json
import re
from pathlib import Path

import pytest

from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.event_filter import checked_filter
from rioni.domain.subscriptions.filter_reading import FUNCTIONS, MACROS


PAGE = (Path(__file__).parents[3] / "docs/reference/values-cel.md").read_text()
VALUES, RESULTS = PAGE.split("\n## Results\n")
EVENT = re.search(r"```json\n(.*?)\n```", RESULTS, re.DOTALL)[1].encode()


def rows(text):
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and cells[0].startswith("`"):
            yield [cell.strip("`") if cell.startswith("`") else cell for cell in cells]


@pytest.mark.parametrize(("value", "cel", "expected"), [*rows(VALUES)])
def test_a_value_of_json_is_carried_exactly_or_the_event_is_sent(value, cel, expected):
    event = f'{{"v":{value}}}'.encode()
    if expected == "sent":
        assert cel == "none"
        for expression in ("event.v == 1", "event.v != 1"):
            outcome = checked_filter(expression).outcome(event)
            assert outcome.is_wanted
            assert outcome.failure
    else:
        assert checked_filter(expected).outcome(event) == (True, "")


@pytest.mark.parametrize(("expression", "result"), [*rows(RESULTS)])
def test_an_expression_gives_what_the_specification_says(expression, result):
    if result == "refused":
        with pytest.raises(Invalid, match=r"^The filter can't be used: \w"):
            checked_filter(expression)
        return
    outcome = checked_filter(expression).outcome(EVENT)
    assert outcome.is_wanted == (result == "true")
    assert bool(outcome.failure) == (result == "fails")


def test_the_tables_have_every_function_that_filters_may_call():
    called = " ".join(expression for expression, result in rows(RESULTS) if result == "true")
    assert [name for name in sorted(FUNCTIONS | MACROS | {"matches"}) if f"{name}(" not in called] == []


@pytest.mark.parametrize("text", ["Grüße", "ß", "日本語", "😀😀", "e\u0301", "a" * 1000 + "é", "ﬁ", "İ"])
def test_functions_of_texts_count_and_cut_code_points(text):
    event = json.dumps({"a": text, "b": text[:1], "c": text[-1:], "l": [text]}, ensure_ascii=False).encode()
    for expression in (
        f"size(event.a) == {len(text)} && event.a.size() == {len(text)}",
        "event.a.startsWith(event.b) && event.a.endsWith(event.c) && event.a.contains(event.b)",
        f"(event.a + event.a).size() == {2 * len(text)}",
        f"event.a in event.l && event.l.exists(x, size(x) == {len(text)})",
        "string(bytes(event.a)) == event.a",
        f"size(bytes(event.a)) == {len(text.encode())}",
    ):
        assert checked_filter(expression).outcome(event) == (True, ""), expression


def test_failures_are_counted_until_they_are_taken():
    wanted = checked_filter("event.a > 1 && event.a < 5")
    wanted.take_failures()
    for event in (b'{"a":2}', b"{}", b'{"a":"x"}', b'{"a":18446744073709551616}', b'{"a":7}'):
        wanted.matches(event)
    assert wanted.take_failures() == 3
    assert wanted.take_failures() == 0
