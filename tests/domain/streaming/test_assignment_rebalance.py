"""Assigning partitions, with the vectors of the contract: reference streams#shares, streams#dead-streams.

Source: reference streams#rebalancing.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.ports.coordinator import Assignment, StreamSession
from rioni.domain.streaming.assignment import rebalance
from rioni.domain.timelines.position import EventTypePartition
from tests.support.tables import rows


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


def auto(*names: str) -> list[StreamSession]:
    return [StreamSession(name) for name in names]


def direct(name: str, *numbers: int) -> StreamSession:
    return StreamSession(name, frozenset(map(partition, numbers)))


@pytest.mark.parametrize(
    ("partitions", "sessions", "quotas"),
    rows(
        ("vector: 2/2", 2, 2, [1, 1]),
        ("vector: 3/2", 3, 2, [2, 1]),
        ("vector: 100/3", 100, 3, [34, 33, 33]),
        ("two event types, 2 and 4 partitions: at most 6 clients", 6, 6, [1] * 6),
        ("surplus sessions get nothing", 6, 7, [1] * 6 + [0]),
    ),
)
def test_free_partitions_are_shared_in_equal_numbers(partitions: int, sessions: int, quotas: list[int]):
    names = [f"s{number}" for number in range(sessions)]
    counts = Counter(shown(rebalance(owned(*[""] * partitions), auto(*names))))
    assert [counts[name] for name in names] == quotas


S1, S2, S3 = auto("s1", "s2", "s3")


@pytest.mark.parametrize(
    ("before", "alive", "after"),
    rows(
        (
            "vector: a direct request",
            ("s1", "s1", "s2", "s2"),
            [S1, S2, direct("s3", 1, 4)],
            ("s1>s3", "s1", "s2", "s2>s3"),
        ),
        ("vector: a new session", ("s1", "s1", "s2", "s2"), [S1, S2, S3], ("s1", "s1", "s2", "s2>s3")),
        ("vector: a dead session", ("s0", "s0>s1", "s0", "s1"), [S1, S2], ("s2", "s1", "s2", "s1")),
        ("vector: balanced", ("s1", "s2"), [S1, S2], ("s1", "s2")),
        ("vector: balanced by effective owners", ("s1", "s1>s2"), [S1, S2], ("s1", "s1>s2")),
        ("vector: only direct sessions", ("", "s0", ""), [direct("s1", 3)], ("", "", "s1")),
        ("requested and already its own", ("s1", "s2"), [direct("s1", 1), S2], ("s1", "s2")),
        ("two request the same: one has it", ("", ""), [direct("s1", 1), direct("s2", 1)], ("s1", "")),
        ("a request for an unknown partition", ("s1",), [S1, direct("s2", 9)], ("s1",)),
        ("more automatic sessions than partitions", ("s1",), [S1, S2], ("s1",)),
        ("the same, beside a request", ("s1", "s2"), [S1, S2, direct("s3", 1)], ("s1>s3", "s2")),
        ("no session is left", ("s1", "s1>s2"), [], ("", "")),
        ("the rest goes to the first ones", ("", "", ""), [S2, S1], ("s1", "s1", "s2")),
        ("unequal, but as equal as can be", ("s2", "s2", "s1"), [S1, S2], ("s2", "s2", "s1")),
        (
            "owned by a direct session that did not ask for it",
            ("s1", "s1"),
            [direct("s1", 1), S2],
            ("s1", "s1>s2"),
        ),
        ("under way to a dead session", ("s1>s2", "s1"), [S1], ("s1", "s1")),
        (
            "a partition being handed over is taken back first",
            ("s1>s2", "s2", "s2", "s1>s2"),
            [S1, S2],
            ("s1", "s2", "s2", "s1"),
        ),
        ("else the last in topology order", ("s1", "s1", "s1"), [S1, S2], ("s1", "s1", "s1>s2")),
        ("unassigned is assigned at once", ("s1", ""), [S1, S2], ("s1", "s2")),
        (
            "move: a second one replaces the next session",
            ("s1>s2", "s1"),
            [S1, direct("s2", 2), direct("s3", 1)],
            ("s1>s3", "s1>s2"),
        ),
        ("move: back to its present owner", ("s1>s2",), [S1], ("s1",)),
        ("two event types: then 3 and 3", ("s1",) * 6, [S1, S2], ("s1",) * 3 + ("s1>s2",) * 3),
        ("a client dies", ("s1", "s2"), [S1], ("s1", "s1")),
        ("a node dies during a hand-over", ("s0>s1", "s1>s0"), [S1], ("s1", "s1")),
    ),
)
def test_partitions_are_moved_as_in_the_contract(before, alive, after):
    assert shown(rebalance(owned(*before), alive)) == list(after)


# --- properties ---

NAMES = ["s1", "s2", "s3", "s4", "s5"]
assignments = st.builds(
    lambda a, b: Assignment(a, b if a and b != a else ""), st.sampled_from(["", *NAMES]), st.sampled_from(["", *NAMES])
)
topologies = st.lists(assignments, max_size=8).map(lambda items: {partition(n): a for n, a in enumerate(items)})
sessions = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(st.just(frozenset()), st.frozensets(st.integers(0, 9).map(partition), max_size=3))
).map(lambda found: [StreamSession(name, requested) for name, requested in found.items()])


@given(topologies, sessions)
def test_the_result_is_the_same_the_second_time(before, alive):
    after = rebalance(before, alive)
    assert rebalance(after, reversed(alive)) == after


@given(topologies, sessions)
def test_no_session_loses_a_partition_without_releasing_it(before, alive):
    """Reference streams#assignment."""
    names = {session.id for session in alive}
    for key, assignment in rebalance(before, alive).items():
        assert assignment.next_session != assignment.session or not assignment.session
        assert {assignment.session, assignment.next_session} <= names | {""}
        if before[key].session in names:
            assert assignment.session == before[key].session


@given(topologies, sessions)
def test_every_request_is_honoured_and_the_rest_shared_equally(before, alive):
    """Reference streams#direct-streams, streams#shares."""
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
def test_the_number_of_moves_is_minimal(before, alive):
    automatic = {session.id for session in alive if not session.requested}
    requested = {key for session in alive for key in session.requested}
    pool = [key for key in before if key not in requested]
    names = {session.id for session in alive}

    def owner(assignment: Assignment) -> str:
        """The owner, ignoring dead sessions."""
        return next((name for name in reversed(assignment) if name in names), "")

    held = Counter(owner(before[key]) for key in pool if owner(before[key]) in automatic)
    after = rebalance(before, alive)
    kept = sum(owner(before[key]) == after[key].owner for key in pool if owner(before[key]) in automatic)
    if automatic:
        each, rest = divmod(len(pool), len(automatic))
        most = sum(min(held[name], each) for name in automatic)
        most += min(rest, sum(held[name] > each for name in automatic))
        assert kept == most
