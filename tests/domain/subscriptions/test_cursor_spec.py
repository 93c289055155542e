import pytest

from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.cursor_spec import CursorSpec, for_each_partition, violations


TIME = "2026-11-20T10:00:00Z"
PLACE = {"event_type": "a", "partition": "0"}
PARTITIONS = {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        (PLACE | {"offset": "0"}, []),
        (PLACE | {"offset": "BEGIN", "shift": 1}, []),
        (PLACE | {"timestamp": TIME}, []),
        ({"event_type": "a", "offset": "end"}, []),
        ({"event_type": "a", "timestamp": TIME}, []),
        ({"offset": "begin"}, []),
        ({"timestamp": TIME, "shift": -1}, []),
        ({}, ["partition", "offset", "event_type"]),
        (PLACE, ["offset"]),
        (PLACE | {"shift": 1}, ["offset"]),
        (PLACE | {"offset": ""}, ["offset"]),
        (PLACE | {"offset": "0", "timestamp": TIME}, ["timestamp"]),
        (PLACE | {"timestamp": "yesterday"}, ["timestamp"]),
        (PLACE | {"timestamp": "2026-11-20T10:00:00"}, ["timestamp"]),
        ({"offset": "0"}, ["partition", "event_type"]),
        ({"event_type": "a", "offset": "0"}, ["partition"]),
        ({"event_type": "a", "partition": "", "offset": "END"}, ["partition"]),
        ({"partition": "0", "offset": "END"}, ["event_type"]),
        ({"event_type": "", "offset": "END"}, ["event_type"]),
    ],
)
def test_a_cursor_spec_names_exactly_one_position_in_known_partitions(members, wrong):
    """Reference cursors#cursor-objects, cursors#timestamps."""
    assert [field for field, _ in violations(CursorSpec(**members), "items[0]")] == [
        f"items[0].{name}" for name in wrong
    ]


def keys(*names):
    return ["".join(key) for key, _ in for_each_partition(names, PARTITIONS)]


def test_a_cursor_spec_without_partition_applies_to_all_partitions():
    """Reference cursors#all-partitions."""
    assert keys(CursorSpec(event_type="a", offset="END")) == ["a0", "a1"]
    assert keys(CursorSpec(offset="END")) == ["a0", "a1", "b0"]
    assert keys(CursorSpec(offset="END"), CursorSpec(event_type="a", partition="1", offset="0"))[-1] == "a1"
    assert keys(CursorSpec(event_type="c", partition="7", offset="0")) == ["c7"]
    ((_, named),) = for_each_partition([CursorSpec(event_type="b", timestamp=TIME, shift=-3)], PARTITIONS)
    assert named == CursorSpec(event_type="b", partition="0", timestamp=TIME, shift=-3)


@pytest.mark.parametrize("event_type", [None, "a"])
def test_several_cursor_specs_for_one_partition_are_rejected(event_type):
    """Reference cursors#all-partitions."""
    with pytest.raises(Invalid, match="no more than 1 cursor for all partitions"):
        keys(CursorSpec(event_type=event_type, offset="END"), CursorSpec(event_type=event_type, offset="BEGIN"))
