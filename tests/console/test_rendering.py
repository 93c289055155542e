"""How pages write times and commands."""

import pytest

from rioni.console.rendering import both_times, curl, time


@pytest.mark.parametrize("shown", [time, both_times])
def test_times_are_in_utc(shown):
    assert ">2026-01-31 11:00:00 UTC" in shown("2026-01-31T12:00:00+01:00")
    assert shown(None) == "-"


@pytest.mark.parametrize("text", ["<b>", 7, {"a": "<"}, "0001-01-01T00:00:00+14:00"])
def test_what_is_no_time_is_shown_as_it_is(text):
    shown = time(text)
    assert "<time" not in shown
    assert "<b>" not in shown


def test_a_command_is_quoted_and_sends_the_token_where_there_is_one():
    line = curl("https://broker", "PUT", "/settings/blacklist/CONSUMER_APP/it's", token=True)
    assert line.startswith("curl -X PUT 'https://broker/")
    assert line.endswith(' -H "Authorization: Bearer $RIONI_TOKEN"')
    assert curl("https://broker", "GET", "/audit", token=False) == "curl https://broker/audit"
    assert """-d '[{"a":1}]'""" in curl("https://broker", "POST", "/x", [{"a": 1}], token=False)
