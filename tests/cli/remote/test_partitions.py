"""`rioni partitions`: places are checked before the broker is asked."""

import pytest


@pytest.mark.parametrize("cursor", ["0", ":BEGIN", "0:"])
def test_what_is_no_place_is_an_error_with_an_example(rioni, cursor):
    for command in (["list", "x", "--after", cursor], ["lag", "x", cursor], ["shift", "x", "--by", "1", cursor]):
        code, _, err = rioni("partitions", *command)
        assert code == 2
        assert f"{cursor} is not a place; write" in err


def test_adding_partitions_needs_a_yes(rioni):
    code, _, err = rioni("partitions", "set-count", "x", "3", stdin="")
    assert code == 2
    assert "There is no terminal to ask on: say it with --yes." in err
