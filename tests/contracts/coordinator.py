"""What every adapter of the port `Coordinator` promises: subclasses provide `coordinator`, `other` and `signals`."""

import threading
from uuid import uuid4

import pytest

from rioni.domain.cursor import format_offset
from rioni.domain.errors import Conflict, Invalid, SubscriptionNotFound, Unavailable
from rioni.domain.ports import Assignment, Coordinator, EventTypePartition, Signals


ENOUGH_S = 20
A0, A1, A2, A3 = (EventTypePartition("a", str(number)) for number in range(4))


def offset(position: int) -> str:
    return format_offset(1, position)


BEFORE = offset(-1)
ALL = dict.fromkeys((A0, A1, A2, A3), BEFORE)


def name() -> str:
    return str(uuid4())


class CoordinatorContract:
    @pytest.fixture
    def subscription(self, coordinator: Coordinator) -> str:
        subscription = name()
        coordinator.initialise(subscription, ALL)
        return subscription

    @pytest.fixture
    def stream(self, coordinator: Coordinator, subscription: str) -> str:
        stream = name()
        coordinator.join(subscription, stream)
        return stream

    # --- initialisation ---

    def test_before_initialisation_there_is_nothing(self, coordinator: Coordinator):
        subscription = name()
        assert coordinator.cursors(subscription) == {}
        assert coordinator.topology(subscription).partitions == {}
        with pytest.raises(SubscriptionNotFound):
            coordinator.join(subscription, name())

    def test_initialising_lays_down_cursors_and_unassigned_partitions_in_order(self, coordinator, other, subscription):
        for each in (coordinator, other):
            assert list(each.cursors(subscription).items()) == list(ALL.items())
            assert list(each.topology(subscription).partitions.items()) == [(key, Assignment()) for key in ALL]

    def test_initialising_again_changes_nothing(self, coordinator, other, subscription):
        for each in (coordinator, other):
            each.initialise(subscription, {A0: offset(5)})
            assert each.cursors(subscription) == ALL

    # --- sessions ---

    def test_streams_share_the_partitions(self, coordinator, other, subscription, stream):
        second = name()
        other.join(subscription, second)
        owners = [assignment.owner for assignment in coordinator.topology(subscription).partitions.values()]
        assert sorted(owners) == sorted([stream, stream, second, second])
        assert set(coordinator.topology(subscription).sessions) == {stream, second}

    def test_a_partition_moves_when_its_owner_releases_it(self, coordinator, other, subscription, stream):
        second = name()
        other.join(subscription, second, [A1])
        assert coordinator.topology(subscription).partitions[A1] == Assignment(stream, second)
        other.release(subscription, second, A1)
        assert coordinator.topology(subscription).partitions[A1] == Assignment(stream, second)
        coordinator.release(subscription, stream, A0)
        assert coordinator.topology(subscription).partitions[A0] == Assignment(stream)
        coordinator.release(subscription, stream, A1)
        assert other.topology(subscription).partitions[A1] == Assignment(second)

    def test_leaving_gives_everything_to_the_others_at_once(self, coordinator, other, subscription, stream):
        second = name()
        other.join(subscription, second)
        coordinator.leave(subscription, stream)
        coordinator.leave(subscription, stream)
        assert set(other.topology(subscription).partitions.values()) == {Assignment(second)}
        assert set(other.topology(subscription).sessions) == {second}

    def test_every_change_has_a_new_epoch_and_no_change_the_same_topology(self, coordinator, other, subscription):
        stream = name()
        epochs = [coordinator.topology(subscription).epoch]
        for change in (
            lambda: coordinator.join(subscription, stream),
            lambda: other.join(subscription, name(), [A0]),
            lambda: coordinator.release(subscription, stream, A0),
            lambda: coordinator.leave(subscription, stream),
        ):
            change()
            epochs.append(other.topology(subscription).epoch)
            assert coordinator.topology(subscription) is coordinator.topology(subscription)
            assert coordinator.topology(subscription) == other.topology(subscription)
        assert epochs == sorted(set(epochs))

    def test_there_are_as_many_slots_as_partitions(self, coordinator, other, subscription):
        coordinator.join(subscription, name(), [A0, A1])
        coordinator.join(subscription, name())
        other.join(subscription, name())
        with pytest.raises(Conflict) as caught:
            coordinator.join(subscription, name())
        assert str(caught.value) == (
            f"No free slots for streaming available for subscription {subscription}. Total slots: 4"
        )
        other.join(subscription, name(), [A2])

    def test_a_partition_can_be_requested_once(self, coordinator, other, subscription):
        coordinator.join(subscription, name(), [A0, A1])
        with pytest.raises(Conflict) as caught:
            other.join(subscription, name(), [A2, A1])
        assert str(caught.value) == (
            "The following partitions are already requested by other stream(s) of this subscription: "
            "EventTypePartition{eventType='a', partition='1'}"
        )
        assert len(other.topology(subscription).sessions) == 1

    def test_of_racers_for_one_slot_exactly_one_wins(self, coordinator, other):
        subscription = name()
        coordinator.initialise(subscription, {A0: BEFORE})
        outcomes: list[bool] = []

        def race(each: Coordinator) -> None:
            try:
                each.join(subscription, name())
                outcomes.append(True)
            except Conflict:
                outcomes.append(False)

        threads = [threading.Thread(target=race, args=(each,)) for each in [coordinator, other] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(outcomes) == 1
        assert len(outcomes) == 8

    # --- cursors ---

    def test_what_is_committed_is_seen_by_all(self, coordinator, other, subscription, stream):
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

    def test_a_later_timeline_is_ahead(self, coordinator, subscription, stream):
        coordinator.commit(subscription, stream, [(A0, offset(100))])
        assert coordinator.commit(subscription, stream, [(A0, format_offset(2, -1))]) == [True]
        assert coordinator.commit(subscription, stream, [(A0, offset(200))]) == [False]

    def test_before_the_first_event_is_outdated_on_a_fresh_subscription(self, coordinator, subscription, stream):
        assert coordinator.commit(subscription, stream, [(A0, BEFORE), (A1, "BEGIN")]) == [False, False]

    @pytest.mark.parametrize("key", [EventTypePartition("a", "9"), EventTypePartition("b", "0")])
    def test_unknown_partitions_are_refused_and_nothing_is_written(self, coordinator, subscription, stream, key):
        with pytest.raises(Invalid) as caught:
            coordinator.commit(subscription, stream, [(A0, offset(1)), (key, offset(1))])
        assert str(caught.value) == f"non existing partition {key.partition}"
        assert coordinator.cursors(subscription) == ALL

    def test_partitions_of_nobody_are_refused(self, coordinator, subscription):
        stream = name()
        coordinator.join(subscription, stream, [A0])
        with pytest.raises(Invalid, match=r"^non existing partition 1$"):
            coordinator.commit(subscription, stream, [(A1, offset(1))])

    def test_partitions_of_others_are_refused(self, coordinator, other, subscription, stream):
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

    def test_concurrent_commits_keep_the_greatest(self, coordinator, other, subscription, stream):
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

    # --- waking up ---

    def test_every_change_wakes_the_watchers(self, other, signals: Signals, subscription):
        stream, second = name(), name()
        watch = signals.watch([f"subscription:{subscription}"])
        for change in (
            lambda: other.join(subscription, stream),
            lambda: other.join(subscription, second, [A0]),
            lambda: other.commit(subscription, stream, [(A0, offset(1))]),
            lambda: other.release(subscription, stream, A0),
            lambda: other.leave(subscription, stream),
            lambda: other.leave(subscription, second),
            lambda: other.reset(subscription, {A0: offset(0)}, 0),
            lambda: other.forget(subscription),
        ):
            change()
            assert watch.wait(ENOUGH_S)
        watch.close()

    # --- reset ---

    def test_a_reset_sets_cursors_backwards_and_leaves_others(self, coordinator, other, subscription, stream):
        coordinator.commit(subscription, stream, [(A0, offset(9)), (A1, offset(9))])
        coordinator.leave(subscription, stream)
        other.reset(subscription, {A0: offset(4)}, ENOUGH_S)
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
    def test_a_reset_gives_up_and_changes_nothing(self, coordinator, subscription):
        with pytest.raises(Unavailable, match=r"^Timeout resetting cursors$"):
            coordinator.reset(subscription, {A0: offset(4)}, 0)
        assert coordinator.cursors(subscription) == ALL
        assert not coordinator.topology(subscription).resetting
        coordinator.join(subscription, name())

    def test_a_reset_of_nothing_ends_no_stream(self, coordinator, subscription, stream):
        coordinator.reset(subscription, {}, 0)
        assert set(coordinator.topology(subscription).sessions) == {stream}

    # --- ends ---

    def test_a_forgotten_subscription_is_as_one_never_seen(self, coordinator, other, subscription, stream):
        assert other.cursors(subscription)
        assert other.topology(subscription).sessions
        coordinator.forget(subscription)
        for each in (coordinator, other):
            assert each.cursors(subscription) == {}
            assert each.topology(subscription).epoch == 0
            assert each.topology(subscription).partitions == {}
        with pytest.raises(Invalid):
            coordinator.commit(subscription, stream, [(A0, offset(1))])

    def test_closing_ends_the_sessions_of_this_process_alone(self, coordinator, other, subscription, stream):
        second = name()
        other.join(subscription, second)
        other.close()
        assert set(coordinator.topology(subscription).sessions) == {stream}
        assert set(coordinator.topology(subscription).partitions.values()) == {Assignment(stream)}
