"""`rioni subscriptions try-filter`."""

from decimal import Decimal

import pytest


def test_a_filter_is_tried_on_events(rioni, snapshot):
    events = "".join(f'{{"number": {number}}}\n' for number in range(25))
    code, out, _ = rioni(
        "subscriptions", "try-filter", "event.number > 22 && has(event.number)", "--json", stdin=events
    )
    assert code == 0
    assert out.count('"matches":true') == 2
    snapshot("subscriptions-try-filter", out.splitlines(keepends=True)[-1])


def test_no_match_is_a_finding_and_a_bad_filter_an_error(rioni):
    assert rioni("subscriptions", "try-filter", "event.a > 1", stdin='{"a": 1}\n')[0] == 1
    code, _, err = rioni("subscriptions", "try-filter", "event.a >", stdin='{"a": 1}\n')
    assert code == 2
    assert "The filter can't be used" in err
    assert rioni("subscriptions", "try-filter", "event.a > 1", stdin="{")[0] == 2


@pytest.mark.parametrize(
    ("content", "line"), [(b'{"a": 1}\nnull\n', 2), (b"<html>", 1), (b'{"a": 1, "a": 2}', 1), (b'{"a": "\xff"}', 1)]
)
def test_what_is_no_event_is_an_error_with_its_line(rioni, content, line):
    code, out, err = rioni("subscriptions", "try-filter", "event.a > 1", stdin=content)
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: stdin:{line}: ")


def test_a_file_that_is_not_there_is_an_error(rioni):
    code, _, err = rioni("subscriptions", "try-filter", "event.a > 1", "absent.jsonl")
    assert code == 2
    assert err == "Error: absent.jsonl can't be read: No such file or directory.\n"


def test_values_without_a_form_in_json_are_refused_and_decimals_are_numbers(client):
    with pytest.raises(ValueError, match="nan"):
        client.subscriptions.try_filter("event.a == null", [{"a": float("nan")}])
    (found,) = client.subscriptions.try_filter("type(event.a) == double", [{"a": Decimal("1.10")}])
    assert found.matches
