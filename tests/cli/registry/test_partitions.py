"""`rioni partitions`: places are checked before the broker is asked."""

import pytest

from rioni.client import EventType, Schema


@pytest.mark.parametrize("cursor", ["0", ":BEGIN", "0:"])
def test_what_is_no_place_is_an_error_with_an_example(rioni, cursor):
    for command in (["list", "x", "--after", cursor], ["lag", "x", cursor], ["shift", "x", "--by", "1", cursor]):
        code, _, err = rioni("partitions", *command)
        assert code == 2
        assert f"{cursor} is not a place; write" in err


BEYOND = f"001-0001-{6:018}"


@pytest.mark.parametrize(
    "command",
    [["show", "{}", "0", "--after", BEYOND], ["list", "{}", "--after", f"0:{BEYOND}"], ["lag", "{}", f"0:{BEYOND}"]],
)
def test_a_place_behind_the_newest_event_is_shown_as_such(rioni, client, name, command):
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    client.publish(name, [{"a": 1}])
    arguments = [each.format(name) for each in command]
    code, out, err = rioni("partitions", *arguments)
    assert code == 0, err
    assert "6 beyond the end" in out
    code, out, err = rioni("partitions", *arguments, "--json")
    assert '"unconsumed_events": -6' in out or '"unconsumed_events":-6' in out


def test_adding_partitions_needs_a_yes(rioni):
    code, _, err = rioni("partitions", "set-count", "x", "3", stdin="")
    assert code == 2
    assert "There is no terminal to ask on: use --yes." in err
