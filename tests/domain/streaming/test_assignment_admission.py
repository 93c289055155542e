import pytest

from rioni.domain.errors import Conflict, Invalid, SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, StreamSession, Topology
from rioni.domain.streaming.assignment import StreamSlots, check_commit, compare
from rioni.domain.timelines.position import EventTypePartition, format_offset


A, B, C = (EventTypePartition("a", str(number)) for number in range(3))
OWNERS = {A: "mine", B: "theirs", C: ""}


def at(position: int) -> str:
    return format_offset(1, position)


def topology(*sessions: StreamSession, resetting: bool = False) -> Topology:
    return Topology(1, dict.fromkeys((A, B, C), Assignment()), {each.id: each for each in sessions}, resetting)


def test_there_are_as_many_slots_as_partitions_that_no_stream_requests():
    """Reference streams#slots."""
    slots = StreamSlots("s", topology(StreamSession("direct", frozenset({A}))))
    slots.assign(StreamSession("first"))
    slots.assign(StreamSession("second"))
    with pytest.raises(Conflict, match=r"^No free slots for streaming available for subscription s. Total slots: 3$"):
        slots.assign(StreamSession("third"))
    slots.assign(StreamSession("late", frozenset({C})))
    with pytest.raises(Conflict, match=r"partition='0'}, EventTypePartition{eventType='a', partition='2'}$"):
        slots.assign(StreamSession("later", frozenset({A, B, C})))


def test_there_are_no_slots_during_a_reset_or_without_partitions():
    with pytest.raises(Conflict, match="still in progress"):
        StreamSlots("s", topology(resetting=True)).assign(StreamSession("first"))
    with pytest.raises(SubscriptionNotFound):
        StreamSlots("s", Topology(0, {}, {}))


@pytest.mark.parametrize(
    ("key", "lives", "problem"),
    [
        (A, False, "Session with stream id mine not found"),
        (B, True, "Cursor {partition='1', offset='5', event_type='a'} cannot be committed with stream id mine"),
        (C, True, "non existing partition 2"),
        (EventTypePartition("b", "7"), True, "non existing partition 7"),
    ],
)
def test_only_the_owner_commits(key, lives, problem):
    """Reference subscriptions#ownership."""
    check_commit("mine", [(A, "5")], is_alive=True, owner=OWNERS.get)
    with pytest.raises(Invalid) as caught:
        check_commit("mine", [(A, "5"), (key, "5")], is_alive=lives, owner=OWNERS.get)
    assert str(caught.value) == problem


def test_cursors_are_compared_one_after_the_other():
    """Reference subscriptions#commit-order."""
    positions = [105, 106, 102, 96, 130, 120, 121, 100]
    found = compare({A: at(100), B: at(7)}, [*((A, at(position)) for position in positions), (B, "BEGIN")])
    assert found.advanced == [True, True, False, False, True, False, False, False, False]
    assert found.ahead == {A: at(130)}
    assert found.again == {A}
