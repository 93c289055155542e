"""JSON patches: applied to the value before they give the value after, and are bounded whatever the values are."""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.json_patch import POINTERS_CHARACTERS_MAX, json_patch


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "~", "/", "~1"]),
    lambda children: (
        st.lists(children, max_size=5) | st.dictionaries(st.sampled_from(["", "a", "b/c", "~0", "0"]), children)
    ),
    max_leaves=12,
)


def applied(document, patch):
    """Apply the operations `add`, `remove` and `replace` as RFC 6902 specifies them."""
    document = copy.deepcopy(document)
    for operation in patch:
        keys = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")[1:]]
        if not keys:
            assert operation["op"] == "replace"
            document = operation["value"]
            continue
        *above, last = keys
        target = document
        for key in above:
            target = target[int(key)] if isinstance(target, list) else target[key]
        if isinstance(target, list):
            place = int(last)
            if operation["op"] == "add":
                assert place <= len(target)
                target.insert(place, operation["value"])
            elif operation["op"] == "remove":
                del target[place]
            else:
                target[place] = operation["value"]
            continue
        assert (last in target) == (operation["op"] != "add")
        if operation["op"] == "remove":
            del target[last]
        else:
            target[last] = operation["value"]
    return document


def canonical(value):
    return msgspec.json.encode(value, order="deterministic")


@given(VALUES, VALUES)
def test_a_patch_applied_to_the_value_before_gives_the_value_after(before, after):
    assert canonical(applied(before, json_patch(before, after))) == canonical(after)


@given(VALUES)
def test_the_patch_between_the_same_values_is_empty(value):
    assert json_patch(value, copy.deepcopy(value)) == []


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        (None, {"a": 1}, [("replace", "")]),
        ({"a": 1}, None, [("replace", "")]),
        ({"a": 1, "b": 2}, {"b": 3, "c/d": 4}, [("remove", "/a"), ("replace", "/b"), ("add", "/c~1d")]),
        ([1, 2, 4], [1, 2, 3, 4], [("add", "/2")]),
        ([1, 2, 3, 4], [1, 4], [("remove", "/2"), ("remove", "/1")]),
        ([{"a": 1}, 5], [{"a": 2}, 5], [("replace", "/0/a")]),
        ([True], [1], [("replace", "/0")]),
    ],
    ids=str,
)
def test_a_patch_says_what_has_changed_and_no_more(before, after, patch):
    assert [(each["op"], each["path"]) for each in json_patch(before, after)] == patch


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"x" * 100_000: {str(n): 0 for n in range(5_000)}}, {"x" * 100_000: {str(n): 1 for n in range(5_000)}}),
        (list(range(60_000)), list(range(60_000, 0, -1))),
        (list(range(60_000)), list(range(30_000, 90_000))),
    ],
    ids=["long names", "reversed", "moved"],
)
def test_hostile_states_give_a_bounded_patch(before, after):
    patch = json_patch(before, after)
    size = len(msgspec.json.encode(patch))
    assert size <= 60 * 60_000 + POINTERS_CHARACTERS_MAX + len(msgspec.json.encode(after))
    assert canonical(applied(before, patch)) == canonical(after)
