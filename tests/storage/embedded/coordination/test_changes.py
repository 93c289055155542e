from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Conflict, Invalid, RioniError
from rioni.domain.ports.coordinator import Assignment, StreamSession
from rioni.storage.embedded.coordination.changes import Changes
from rioni.storage.embedded.coordination.database import CoordinationDatabase, SubscriptionRows
from tests.contracts.coordination import A0, A1, A2, A3, ALL, offset


Change = Callable[[Changes], Any]


def together(database: CoordinationDatabase, *wanted: Change) -> list[Any]:
    """Make changes in one transaction; returns the result or exception of each."""
    outcomes: list[Any] = []
    with database.writing() as connection:
        changes = Changes(connection, "worker")
        for change in wanted:
            try:
                outcomes.append(change(changes))
            except RioniError as ex:
                outcomes.append(str(ex))
        changes.finish()
    return [*outcomes, changes]


def join(name: str, *requested) -> Change:
    return lambda changes: changes.join("s", StreamSession(name, frozenset(requested)))


def leave(name: str) -> Change:
    return lambda changes: changes.leave("s", name)


def commit(name: str, *cursors, subscription: str = "s") -> Change:
    return lambda changes: changes.commit(subscription, name, [(key, offset(position)) for key, position in cursors])


def attempt(name: str, key, position: int, search: int | None = None) -> Change:
    until = None if search is None else offset(search)
    return lambda changes: changes.record_delivery_attempt("s", name, key, offset(position), until)


def open_database(path: Path) -> CoordinationDatabase:
    database = CoordinationDatabase(path)
    with database.writing() as connection:
        for name in "st":
            SubscriptionRows(connection, name).add(ALL)
    return database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CoordinationDatabase]:
    with closing(open_database(tmp_path / "coordination.db")) as database:
        yield database


def read(database: CoordinationDatabase, load: Callable[[SubscriptionRows], Any], subscription: str = "s") -> Any:
    with database.reading() as connection:
        return load(SubscriptionRows(connection, subscription))


def state(database: CoordinationDatabase) -> list[Any]:
    loads = (SubscriptionRows.cursors, SubscriptionRows.heartbeats, SubscriptionRows.delivery_failures)
    return [read(database, load) for load in loads]


def test_many_joins_are_one_rebalance(database):
    before = read(database, SubscriptionRows.topology).epoch
    *outcomes, changes = together(database, *(join(f"stream-{number}") for number in range(6)))
    full = "No free slots for streaming available for subscription s. Total slots: 4"
    assert outcomes == [None] * 4 + [full] * 2
    topology = read(database, SubscriptionRows.topology)
    assert topology.epoch == before + 1
    names = [f"stream-{number}" for number in range(4)]
    assert sorted(each.session for each in topology.partitions.values()) == sorted(topology.sessions) == names
    assert changes.keys >= {f"stream:{name}" for name in names}


def test_a_join_sees_earlier_changes_of_the_same_transaction(database):
    outcomes = together(database, join("a", A0, A1), join("b", A1), join("c"), leave("a"), join("d", A1))
    assert "already requested" in outcomes[1]
    assert [outcomes[number] for number in (0, 2, 3, 4)] == [None] * 4
    topology = read(database, SubscriptionRows.topology)
    assert set(topology.sessions) == {"c", "d"}
    assert topology.partitions == {A0: Assignment("c"), A1: Assignment("d"), A2: Assignment("c"), A3: Assignment("c")}


def test_only_sessions_that_a_change_concerns_are_woken(database):
    together(database, join("a", A0), join("b", A1), join("c"))
    assert together(database, commit("a", (A0, 3)))[-1].keys == {"stream:a", "changed:s"}
    assert together(database, commit("a", (A0, 2)))[-1].keys == set()
    assert together(database, join("d", A2))[-1].keys == {"stream:c", "stream:d"}
    assert together(database, lambda changes: changes.release("s", "c", [A2, A3]))[-1].keys == {"stream:c", "stream:d"}
    assert together(database, leave("d"))[-1].keys == {"subscription:s", "stream:c", "stream:d"}
    assert together(database, leave("d"))[-1].keys == set()


def test_leaving_after_a_commit_is_no_failure_and_a_commit_after_leaving_is_rejected(database):
    together(database, join("a"))
    outcomes = together(
        database, attempt("a", A0, 5), attempt("a", A1, 5), commit("a", (A0, 5)), leave("a"), commit("a", (A1, 5))
    )
    assert outcomes[2] == [True]
    assert outcomes[4] == "Session with stream id a not found"
    cursors, _, failures = state(database)
    assert cursors == ALL | {A0: offset(5)}
    assert list(failures) == [A1]


def test_commits_of_several_subscriptions_share_a_transaction(database):
    together(database, join("a"), lambda changes: changes.join("t", StreamSession("b")))
    outcomes = together(
        database,
        commit("a", (A0, 1)),
        commit("b", (A0, 2), subscription="t"),
        commit("a", (A0, 3), subscription="t"),
    )
    assert outcomes[:2] == [[True], [True]]
    assert outcomes[2] == "Session with stream id a not found"
    assert [read(database, SubscriptionRows.cursors, name)[A0] for name in "st"] == [offset(1), offset(2)]


def test_a_rejected_change_changes_nothing(database):
    together(database, join("a", A0, A1))
    before = read(database, SubscriptionRows.topology), state(database)
    with database.writing() as connection:
        changes = Changes(connection, "worker")
        with pytest.raises(Invalid):
            changes.commit("s", "a", [(A0, offset(1)), (A2, offset(1))])
        with pytest.raises(Conflict):
            changes.join("s", StreamSession("b", frozenset([A1, A2])))
        changes.finish()
    assert (read(database, SubscriptionRows.topology), state(database)) == before
    assert changes.keys == set()


CURSORS = st.lists(st.tuples(st.sampled_from([A0, A1, A2]), st.integers(-1, 6)), min_size=1, max_size=4)
CHANGES = st.one_of(
    st.builds(lambda name, cursors: commit(name, *cursors), st.sampled_from("abc"), CURSORS),
    st.builds(
        attempt,
        st.sampled_from("ab"),
        st.sampled_from([A0, A1, A2]),
        st.integers(0, 6),
        st.one_of(st.none(), st.integers(0, 6)),
    ),
)


@given(st.lists(CHANGES, max_size=12))
def test_commits_in_one_transaction_have_the_same_result_as_in_sequence(wanted):
    found = []
    for alone in (True, False):
        with TemporaryDirectory() as folder, closing(open_database(Path(folder, "coordination.db"))) as database:
            database._writer.execute("PRAGMA synchronous = OFF")  # the machine does not lose power in this test
            together(database, join("a", A0, A1), join("b", A2))
            if alone:
                outcomes = [together(database, change)[0] for change in wanted]
            else:
                outcomes = together(database, *wanted)[:-1]
            together(database, leave("a"), leave("b"))
            found.append((outcomes, state(database)))
    assert found[0] == found[1]
