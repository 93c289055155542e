from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.ports import Assignment, EventTypePartition, Session
from rioni.domain.streaming.rebalance import rebalance


def partition(number: int) -> EventTypePartition:
    return EventTypePartition("a", str(number))


def owned(*owners: str) -> dict[EventTypePartition, Assignment]:
    """Partitions from 1 on; `a>b` is being handed over from a to b."""
    return {
        partition(number): Assignment(*owner.split(">")) if owner else Assignment()
        for number, owner in enumerate(owners, 1)
    }


def shown(assignments) -> list[str]:
    return [f"{a.session}>{a.next_session}".rstrip(">") for a in assignments.values()]


def auto(*names: str) -> list[Session]:
    return [Session(name) for name in names]


def direct(name: str, *numbers: int) -> Session:
    return Session(name, frozenset(map(partition, numbers)))


@pytest.mark.parametrize(("partitions", "sessions", "quotas"), [(2, 2, [1, 1]), (3, 2, [2, 1]), (100, 3, [34, 33, 33])])
def test_free_partitions_are_shared_in_equal_numbers(partitions: int, sessions: int, quotas: list[int]):
    names = [f"s{number}" for number in range(sessions)]
    counts = Counter(shown(rebalance(owned(*[""] * partitions), auto(*names))))
    assert [counts[name] for name in names] == quotas


def test_a_direct_request_takes_exactly_what_it_asks_for():
    after = rebalance(owned("s1", "s1", "s2", "s2"), [*auto("s1", "s2"), direct("s3", 1, 4)])
    assert shown(after) == ["s1>s3", "s1", "s2", "s2>s3"]


def test_a_new_session_takes_one_partition_of_a_full_one():
    after = rebalance(owned("s1", "s1", "s2", "s2"), auto("s1", "s2", "s3"))
    assert shown(after) == ["s1", "s1", "s2", "s2>s3"]


def test_partitions_of_the_dead_are_assigned_at_once():
    after = rebalance(owned("s0", "s0>s1", "s0", "s1"), auto("s1", "s2"))
    assert shown(after) == ["s2", "s1", "s2", "s1"]


@pytest.mark.parametrize("owners", [("s1", "s2"), ("s1", "s1>s2"), ("s2", "s2", "s1"), ("s1",)])
def test_balanced_partitions_stay(owners: tuple[str, ...]):
    assert shown(rebalance(owned(*owners), auto("s1", "s2"))) == list(owners)


def test_what_nobody_asks_for_is_unassigned():
    assert shown(rebalance(owned("", "s0", ""), [direct("s1", 3)])) == ["", "", "s1"]


def test_direct_requests_are_honoured_when_automatic_sessions_outnumber_the_rest():
    after = rebalance(owned("s1", "s2"), [*auto("s1", "s2"), direct("s3", 1)])
    assert shown(after) == ["s1>s3", "s2"]


def test_a_second_move_during_a_hand_over_replaces_the_next_session():
    after = rebalance(owned("s1>s2", "s1"), [*auto("s1"), direct("s2", 2), direct("s3", 1)])
    assert shown(after) == ["s1>s3", "s1>s2"]


def test_a_partition_under_way_to_a_session_that_dies_stays_where_it_is():
    assert shown(rebalance(owned("s1>s2", "s1"), auto("s1"))) == ["s1", "s1"]


def test_a_partition_under_way_is_given_back_before_others_move():
    assert shown(rebalance(owned("s1>s2", "s2", "s2", "s1>s2"), auto("s1", "s2"))) == ["s1", "s2", "s2", "s1"]


# --- properties ---

NAMES = ["s1", "s2", "s3", "s4", "s5"]
assignments = st.builds(
    lambda a, b: Assignment(a, b if a and b != a else ""), st.sampled_from(["", *NAMES]), st.sampled_from(["", *NAMES])
)
topologies = st.lists(assignments, max_size=8).map(lambda items: {partition(n): a for n, a in enumerate(items)})
sessions = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(st.just(frozenset()), st.frozensets(st.integers(0, 9).map(partition), max_size=3))
).map(lambda found: [Session(name, requested) for name, requested in found.items()])


@given(topologies, sessions)
def test_the_result_is_the_same_the_second_time(before, alive):
    after = rebalance(before, alive)
    assert rebalance(after, reversed(alive)) == after


@given(topologies, sessions)
def test_nobody_loses_a_partition_without_releasing_it(before, alive):
    names = {session.id for session in alive}
    for key, assignment in rebalance(before, alive).items():
        assert assignment.next_session != assignment.session or not assignment.session
        assert {assignment.session, assignment.next_session} <= names | {""}
        if before[key].session in names:
            assert assignment.session == before[key].session


@given(topologies, sessions)
def test_every_request_is_honoured_and_the_rest_shared_equally(before, alive):
    after = rebalance(before, alive)
    requested = {key for session in alive for key in session.requested if key in before}
    for key in requested:
        assert after[key].owner in {session.id for session in alive if key in session.requested}
    automatic = {session.id for session in alive if not session.requested}
    counts = Counter(after[key].owner for key in before if key not in requested)
    if automatic:
        assert counts.keys() <= automatic
        assert max(counts[name] for name in automatic) - min(counts[name] for name in automatic) <= 1


@given(topologies, sessions)
def test_no_fewer_moves_would_do(before, alive):
    automatic = {session.id for session in alive if not session.requested}
    requested = {key for session in alive for key in session.requested}
    pool = [key for key in before if key not in requested]
    names = {session.id for session in alive}

    def owner(assignment: Assignment) -> str:
        """Who has it once the dead are forgotten."""
        return next((name for name in reversed(assignment) if name in names), "")

    held = Counter(owner(before[key]) for key in pool if owner(before[key]) in automatic)
    after = rebalance(before, alive)
    kept = sum(owner(before[key]) == after[key].owner for key in pool if owner(before[key]) in automatic)
    if automatic:
        each, rest = divmod(len(pool), len(automatic))
        most = sum(min(held[name], each) for name in automatic)
        most += min(rest, sum(held[name] > each for name in automatic))
        assert kept == most
