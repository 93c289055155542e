import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Conflict, SubscriptionNotFound
from rioni.domain.ports.coordinator import StreamSession
from rioni.domain.timelines.position import EventTypePartition
from rioni.storage.zookeeper.assignment import AssignmentUpdate, PartitionAssignment, SubscriptionAssignment, decode


KEYS = [EventTypePartition("a", str(number)) for number in range(4)]
FRESH = SubscriptionAssignment(tuple(map(PartitionAssignment, KEYS)))
NAMES = ["p", "q", "r"]


def draft(plan: SubscriptionAssignment | None, version: int = 0, living: set[str] = frozenset()) -> AssignmentUpdate:
    return AssignmentUpdate("s", plan, version, living)


def joined(*names: str) -> SubscriptionAssignment:
    made = draft(FRESH)
    for name in names:
        made.join(StreamSession(name))
    return made.finished()


def test_an_update_without_changes_is_not_written():
    plan = joined("p")
    again = draft(plan, 1, {"p"})
    again.join(StreamSession("p"))
    again.leave("unknown")
    again.release("p", KEYS)
    assert again.finished() is None
    assert again.created == {}


def test_a_session_that_joins_and_leaves_within_one_update_leaves_no_trace():
    made = draft(FRESH)
    made.join(StreamSession("p"))
    made.leave("p")
    assert made.created == {}
    assert {share.session for share in (made.finished() or FRESH).shares} == {""}


def test_dead_sessions_are_removed_and_their_partitions_reassigned():
    plan = joined("p", "q")
    made = draft(plan, 1, {"q"})
    after = made.finished()
    assert set(after.sessions) == {"q"}
    assert {share.session for share in after.shares} == {"q"}
    assert made.created == {}


def test_a_reset_whose_process_has_died_is_over():
    made = draft(FRESH)
    made.begin_reset("reset")
    plan = made.finished()
    with pytest.raises(Conflict):
        draft(plan, 1, {"reset"}).begin_reset("another")
    draft(plan, 1, set()).begin_reset("another")
    assert not draft(plan, 1, set()).end_reset("reset")


def test_without_an_assignment_there_is_nothing_to_do():
    made = draft(None, -1)
    made.leave("p")
    made.release("p", KEYS)
    assert made.finished() is None
    for change in (lambda: made.join(StreamSession("p")), lambda: made.begin_reset("r"), lambda: made.extend(KEYS)):
        with pytest.raises(SubscriptionNotFound):
            change()


steps = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "release", "die"]), st.sampled_from(NAMES), st.sampled_from(KEYS)),
    max_size=25,
)


@given(steps)
def test_each_ownership_of_a_partition_has_a_new_term_and_is_stored_completely(steps):
    plan, version, living = FRESH, 0, set()
    terms: dict[tuple[EventTypePartition, int], str] = {}
    for step, name, key in steps:
        if step == "die":
            living.discard(name)
        made = draft(plan, version, living)
        if step == "join" and len(living) < len(KEYS):
            made.join(StreamSession(name))
        elif step == "leave":
            made.leave(name)
        elif step == "release":
            made.release(name, [key])
        after = made.finished()
        living |= {name for name, begins in made.created.items() if begins}
        living -= {name for name, begins in made.created.items() if not begins}
        if after is None:
            continue
        plan, version = decode(after.encoded()), version + 1
        assert plan == after
        assert set(plan.sessions) == living
        assert plan.topology(version + 1).epoch == made.epoch
        for share in plan.shares:
            assert {share.session, share.next_session} - {""} <= living
            assert terms.setdefault((share.partition, share.term), share.session) == share.session
