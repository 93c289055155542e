import copy

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from rioni.cli.definitions.definition import ChangedValue, differences


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "a/b", "~1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab/~."), inner, max_size=3),
    max_leaves=12,
)


def changed(value, found):
    """A value after its differences."""
    root = {"value": copy.deepcopy(value)}
    for difference in found:
        *above, last = ("value", *difference.path)
        container = root
        for segment in above:
            container = container[segment]
        if difference.after is UNSET:
            assert container.pop(last) == difference.before
        elif isinstance(container, list) and difference.before is UNSET:
            container.insert(last, difference.after)
        else:
            assert container.get(last, UNSET) == difference.before if isinstance(container, dict) else True
            container[last] = difference.after
    return root["value"]


@given(before=VALUES, after=VALUES)
def test_the_differences_are_all_that_differs(before, after):
    found = differences(before, after)
    assert changed(before, found) == after
    assert bool(found) == (repr(before) != repr(after) and differences(after, before) != [])


@given(value=VALUES)
def test_a_value_does_not_differ_from_itself(value):
    assert differences(value, copy.deepcopy(value)) == []


def test_true_is_not_1():
    assert differences({"a": True}, {"a": 1}) == [ChangedValue(("a",), True, 1)]


def test_a_difference_as_json_has_what_there_is():
    found = differences({"a": [1, 2], "b": None}, {"a": [1], "c.d": "x"})
    assert [each.as_json() for each in found] == [
        {"path": "a[1]", "before": 2},
        {"path": "b", "before": None},
        {"path": '["c.d"]', "after": "x"},
    ]
