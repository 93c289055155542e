"""The contract of the port `Coordinator` for committing and resetting cursors."""

import threading

import pytest

from rioni.domain.errors import Conflict, Invalid, Unavailable
from rioni.domain.ports.coordinator import Assignment, Coordinator
from rioni.domain.timelines.position import EventTypePartition, format_offset
from tests.contracts.coordination import A0, A1, A3, ALL, BEFORE, ENOUGH_S, CoordinationSuite, name, offset


def heartbeats(coordinator: Coordinator, subscription: str) -> dict[EventTypePartition, int]:
    """The heartbeats, read as the port requires: after the cursors."""
    coordinator.cursors(subscription)
    return dict(coordinator.heartbeats(subscription))


class CommitContract(CoordinationSuite):
    def test_committed_cursors_are_visible_to_all_processes(self, coordinator, other, subscription, stream):
        assert other.commit(subscription, stream, [(A0, offset(4)), (A1, offset(0))]) == [True, True]
        for each in (coordinator, other):
            assert each.cursors(subscription) == ALL | {A0: offset(4), A1: offset(0)}

    def test_cursors_only_advance(self, coordinator, subscription, stream):
        coordinator.commit(subscription, stream, [(A0, offset(100))])
        positions = [105, 106, 102, 96, 130, 120, 121]
        got = coordinator.commit(subscription, stream, [(A0, offset(position)) for position in positions])
        assert got == [True, True, False, False, True, False, False]
        assert coordinator.commit(subscription, stream, [(A0, offset(130))]) == [False]
        assert coordinator.cursors(subscription)[A0] == offset(130)

    def test_committing_the_same_cursor_again_is_a_heartbeat(self, coordinator, other, subscription, stream):
        before = heartbeats(other, subscription)
        assert list(before) == list(ALL)
        seen = other.cursors(subscription)
        assert coordinator.commit(subscription, stream, [(A0, BEFORE), (A0, BEFORE), (A1, BEFORE)]) == [False] * 3
        assert other.cursors(subscription) == seen == ALL
        assert other.cursors(subscription) is not seen
        for each in (coordinator, other):
            after = heartbeats(each, subscription)
            assert {key for key in ALL if after[key] > before[key]} == {A0, A1}

    def test_a_commit_that_advances_or_is_behind_is_no_heartbeat(self, coordinator, other, subscription, stream):
        before = heartbeats(other, subscription)
        coordinator.commit(subscription, stream, [(A0, offset(5)), (A0, offset(5)), (A1, offset(1))])
        coordinator.commit(subscription, stream, [(A0, offset(4)), (A0, BEFORE), (A1, offset(2))])
        for each in (coordinator, other):
            assert heartbeats(each, subscription) == before

    def test_a_rejected_commit_is_no_heartbeat(self, coordinator, other, subscription, stream):
        before = heartbeats(other, subscription)
        for refused in (stream, name()):
            with pytest.raises(Invalid):
                coordinator.commit(subscription, refused, [(A0, BEFORE), (EventTypePartition("a", "9"), BEFORE)])
        assert heartbeats(other, subscription) == before

    def test_a_later_timeline_is_ahead(self, coordinator, subscription, stream):
        coordinator.commit(subscription, stream, [(A0, offset(100))])
        assert coordinator.commit(subscription, stream, [(A0, format_offset(2, -1))]) == [True]
        assert coordinator.commit(subscription, stream, [(A0, offset(200))]) == [False]

    def test_committing_before_the_first_event_does_not_advance_a_fresh_subscription(
        self, coordinator, subscription, stream
    ):
        assert coordinator.commit(subscription, stream, [(A0, BEFORE), (A1, "BEGIN")]) == [False, False]

    @pytest.mark.parametrize("key", [EventTypePartition("a", "9"), EventTypePartition("b", "0")])
    def test_commits_to_unknown_partitions_are_rejected_and_nothing_is_written(
        self, coordinator, subscription, stream, key
    ):
        with pytest.raises(Invalid) as caught:
            coordinator.commit(subscription, stream, [(A0, offset(1)), (key, offset(1))])
        assert str(caught.value) == f"non existing partition {key.partition}"
        assert coordinator.cursors(subscription) == ALL

    def test_commits_to_unassigned_partitions_are_rejected(self, coordinator, subscription):
        stream = name()
        coordinator.join(subscription, stream, [A0])
        with pytest.raises(Invalid, match=r"^non existing partition 1$"):
            coordinator.commit(subscription, stream, [(A1, offset(1))])

    def test_commits_to_partitions_of_other_sessions_are_rejected(self, coordinator, other, subscription, stream):
        second = name()
        other.join(subscription, second)
        assert coordinator.topology(subscription).partitions[A3] == Assignment(stream, second)
        with pytest.raises(Invalid, match="cannot be committed with stream id " + second):
            other.commit(subscription, second, [(A3, offset(1))])
        assert coordinator.commit(subscription, stream, [(A3, offset(1))]) == [True]
        coordinator.release(subscription, stream, A3)
        with pytest.raises(Invalid, match="cannot be committed with stream id " + stream):
            coordinator.commit(subscription, stream, [(A3, offset(2))])
        assert coordinator.commit(subscription, second, [(A3, offset(2))]) == [True]

    def test_a_session_that_has_ended_cannot_commit(self, coordinator, subscription, stream):
        coordinator.leave(subscription, stream)
        with pytest.raises(Invalid) as caught:
            coordinator.commit(subscription, stream, [(A0, offset(1))])
        assert str(caught.value) == f"Session with stream id {stream} not found"

    def test_a_session_of_another_subscription_cannot_commit(self, coordinator, stream):
        another = name()
        coordinator.initialise(another, ALL)
        with pytest.raises(Invalid, match="not found"):
            coordinator.commit(another, stream, [(A0, offset(1))])

    def test_of_concurrent_commits_the_greatest_cursor_is_kept(self, coordinator, other, subscription, stream):
        results: list[bool] = []

        def commit(each: Coordinator, positions: range) -> None:
            for position in positions:
                results.extend(each.commit(subscription, stream, [(A0, offset(position))]))

        threads = [
            threading.Thread(target=commit, args=(each, range(start, 40, 4)))
            for start, each in enumerate([coordinator, other] * 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert coordinator.cursors(subscription)[A0] == other.cursors(subscription)[A0] == offset(39)
        assert len(results) == 40

    # --- reset ---

    def test_a_reset_moves_cursors_back_and_leaves_other_partitions_unchanged(
        self, coordinator, other, subscription, stream
    ):
        coordinator.commit(subscription, stream, [(A0, offset(9)), (A1, offset(9))])
        coordinator.leave(subscription, stream)
        assert other.reset(subscription, {A0: offset(4)}, ENOUGH_S) == {A0: offset(9)}
        assert coordinator.cursors(subscription) == ALL | {A0: offset(4), A1: offset(9)}
        assert not coordinator.topology(subscription).resetting

    def test_a_reset_waits_until_all_streams_have_ended(self, coordinator, other, signals, subscription, stream):
        watch = signals.watch([f"subscription:{subscription}"])
        thread = threading.Thread(target=other.reset, args=(subscription, {A0: offset(4)}, ENOUGH_S))
        thread.start()
        while not coordinator.topology(subscription).resetting:
            assert watch.wait(ENOUGH_S)
        with pytest.raises(Conflict) as caught:
            coordinator.join(subscription, name())
        assert str(caught.value) == "Resetting subscription cursors request is still in progress"
        with pytest.raises(Conflict) as caught:
            coordinator.reset(subscription, {A0: offset(4)}, ENOUGH_S)
        assert str(caught.value) == "Cursors reset is already in progress for provided subscription"
        assert coordinator.commit(subscription, stream, [(A0, offset(7))]) == [True]
        assert coordinator.cursors(subscription)[A0] == offset(7)
        coordinator.leave(subscription, stream)
        thread.join(ENOUGH_S)
        assert coordinator.cursors(subscription)[A0] == offset(4)
        coordinator.join(subscription, name())
        watch.close()

    @pytest.mark.usefixtures("stream")
    def test_a_reset_that_times_out_changes_nothing(self, coordinator, subscription):
        with pytest.raises(Unavailable, match=r"^Timeout resetting cursors$"):
            coordinator.reset(subscription, {A0: offset(4)}, 0)
        assert coordinator.cursors(subscription) == ALL
        assert not coordinator.topology(subscription).resetting
        coordinator.join(subscription, name())

    def test_an_empty_reset_ends_no_stream(self, coordinator, subscription, stream):
        assert coordinator.reset(subscription, {}, 0) == {}
        assert set(coordinator.topology(subscription).sessions) == {stream}
