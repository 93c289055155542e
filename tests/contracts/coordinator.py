"""The contract of the port `Coordinator`: subclasses provide `coordinator`, `other`, `signals` and `flags`."""

import threading
from uuid import uuid4

import pytest

from rioni.domain.errors import Conflict, Invalid, SubscriptionNotFound
from rioni.domain.ports.coordinator import Assignment, Coordinator
from rioni.domain.ports.host import Notifier
from rioni.domain.timelines.position import EventTypePartition
from tests.contracts.commits import CommitContract
from tests.contracts.coordination import A0, A1, A2, A4, ALL, BEFORE, ENOUGH_S, name, offset
from tests.contracts.failures import FailureContract
from tests.support.waiting import wait_until


class CoordinatorContract(CommitContract, FailureContract):
    # --- initialisation ---

    def test_an_uninitialised_subscription_has_no_state(self, coordinator: Coordinator):
        subscription = name()
        assert coordinator.cursors(subscription) == {}
        assert coordinator.topology(subscription).partitions == {}
        with pytest.raises(SubscriptionNotFound):
            coordinator.join(subscription, name())

    def test_initialising_stores_cursors_and_unassigned_partitions_in_order(self, coordinator, other, subscription):
        for each in (coordinator, other):
            assert list(each.cursors(subscription).items()) == list(ALL.items())
            assert each.committed(subscription) == ALL
            assert list(each.topology(subscription).partitions.items()) == [(key, Assignment()) for key in ALL]

    def test_initialising_again_changes_nothing(self, coordinator, other, subscription):
        for each in (coordinator, other):
            each.initialise(subscription, {A0: offset(5)})
            assert each.cursors(subscription) == ALL

    def test_added_partitions_come_last_and_are_assigned_too(self, coordinator, other, subscription, stream):
        new = EventTypePartition("a", "4")
        for each in (other, coordinator):
            each.extend(subscription, {A0: offset(7), new: offset(2)})
        for each in (coordinator, other):
            assert list(each.cursors(subscription).items()) == [*ALL.items(), (new, offset(2))]
            assert list(each.topology(subscription).partitions)[-1] == new
        assert coordinator.topology(subscription).partitions[new] == Assignment(stream)

    def test_only_an_initialised_subscription_can_be_extended(self, coordinator):
        with pytest.raises(SubscriptionNotFound):
            coordinator.extend(name(), ALL)

    def test_a_process_is_alive_until_it_closes_and_never_again(self, coordinator, other):
        worker = other.worker
        assert worker != coordinator.worker
        assert coordinator.is_alive(worker)
        assert coordinator.is_alive(coordinator.worker)
        assert not coordinator.is_alive("nobody")
        other.close()
        assert not coordinator.is_alive(worker)

    def test_living_processes_see_what_each_showed_last(self, coordinator, other):
        assert coordinator.worker not in other.announced()
        coordinator.announce(b'{"streams":1}')
        other.announce(b'{"streams":2}')
        coordinator.announce(b'{"streams":3}')
        shown = {coordinator.worker: b'{"streams":3}', other.worker: b'{"streams":2}'}
        for each in (coordinator, other):
            found = each.announced()
            assert {worker: found[worker] for worker in shown} == shown
        left = other.worker
        other.close()
        assert left not in coordinator.announced()
        assert coordinator.worker in coordinator.announced()

    def test_a_stream_owns_its_partitions_until_its_process_closes(self, coordinator, other, subscription, stream):
        second = name()
        other.join(subscription, second)
        assert coordinator.owns(stream)
        assert other.owns(second)
        other.close()
        assert not other.owns(second)
        assert coordinator.owns(stream)

    # --- several subscriptions ---

    def test_the_cursors_of_several_subscriptions_are_read_at_once(self, coordinator, other, subscription, stream):
        second = name()
        other.initialise(second, {A0: offset(3)})
        other.commit(subscription, stream, [(A1, offset(2))])
        assert coordinator.cursors_of([subscription, second, "unknown"]) == {
            subscription: {**ALL, A1: offset(2)},
            second: {A0: offset(3)},
            "unknown": {},
        }
        assert coordinator.cursors_of([]) == {}

    def test_every_change_of_cursors_that_were_read_raises_a_flag(
        self, coordinator, other, subscription, stream, flags
    ):
        for change, cursors in (
            (lambda: other.commit(subscription, stream, [(A0, offset(1))]), {**ALL, A0: offset(1)}),
            (lambda: other.extend(subscription, {A4: offset(2)}), {**ALL, A0: offset(1), A4: offset(2)}),
            (lambda: coordinator.leave(subscription, stream), {**ALL, A0: offset(1), A4: offset(2)}),
            (lambda: other.reset(subscription, {A0: BEFORE}, 0), {**ALL, A4: offset(2)}),
            (lambda: other.delete(subscription), {}),
            (lambda: other.initialise(subscription, ALL), ALL),
        ):
            coordinator.cursors_of([subscription])
            flags.take()
            change()
            wait_until(lambda: flags.flag_of(subscription) in flags.take())
            assert coordinator.cursors_of([subscription]) == {subscription: cursors}

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

    def test_several_partitions_move_at_once(self, coordinator, other, subscription, stream):
        second = str(uuid4())
        other.join(subscription, second)
        before = coordinator.topology(subscription)
        moving = [key for key, assignment in before.partitions.items() if assignment.next_session == second]
        staying = [key for key, assignment in before.partitions.items() if not assignment.next_session]
        assert len(moving) > 1
        coordinator.release(subscription, stream, *moving, *staying)
        after = coordinator.topology(subscription)
        assert after.epoch == before.epoch + 1
        owned = dict.fromkeys(staying, stream) | dict.fromkeys(moving, second)
        assert {key: assignment.session for key, assignment in after.partitions.items()} == owned

    def test_leaving_assigns_all_partitions_to_the_other_sessions_at_once(
        self, coordinator, other, subscription, stream
    ):
        second = name()
        other.join(subscription, second)
        coordinator.leave(subscription, stream)
        coordinator.leave(subscription, stream)
        assert set(other.topology(subscription).partitions.values()) == {Assignment(second)}
        assert set(other.topology(subscription).sessions) == {second}

    def test_every_change_has_a_new_epoch_and_without_a_change_the_topology_is_equal(
        self, coordinator, other, subscription
    ):
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

    def test_a_subscription_has_as_many_stream_slots_as_partitions(self, coordinator, other, subscription):
        coordinator.join(subscription, name(), [A0, A1])
        coordinator.join(subscription, name())
        other.join(subscription, name())
        with pytest.raises(Conflict) as caught:
            coordinator.join(subscription, name())
        assert str(caught.value) == (
            f"No free slots for streaming available for subscription {subscription}. Total slots: 4"
        )
        other.join(subscription, name(), [A2])

    def test_a_partition_can_be_requested_by_one_session_only(self, coordinator, other, subscription):
        coordinator.join(subscription, name(), [A0, A1])
        with pytest.raises(Conflict) as caught:
            other.join(subscription, name(), [A2, A1])
        assert str(caught.value) == (
            "The following partitions are already requested by other stream(s) of this subscription: "
            "EventTypePartition{eventType='a', partition='1'}"
        )
        assert len(other.topology(subscription).sessions) == 1

    def test_of_concurrent_joins_for_one_slot_exactly_one_succeeds(self, coordinator, other):
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

    # --- clients that have gone ---

    def test_a_retired_session_may_commit_and_holds_no_slot(self, coordinator, other, subscription, stream):
        coordinator.retire(subscription, stream)
        coordinator.retire(subscription, stream)
        assert other.topology(subscription).sessions[stream].retired
        assert other.commit(subscription, stream, [(A0, offset(1))]) == [True]
        others = [name() for _ in ALL]
        for each in others:
            other.join(subscription, each)
        for each in (coordinator, other):
            assert set(each.topology(subscription).sessions) == set(others)
            assert sorted(held.owner for held in each.topology(subscription).partitions.values()) == sorted(others)
        with pytest.raises(Invalid, match=f"Session with stream id {stream} not found"):
            coordinator.commit(subscription, stream, [(A0, offset(2))])

    def test_what_a_retired_session_had_requested_can_be_requested(self, coordinator, other, subscription):
        first, second = name(), name()
        coordinator.join(subscription, first, [A0, A1])
        coordinator.retire(subscription, first)
        other.join(subscription, second, [A1])
        assert set(coordinator.topology(subscription).sessions) == {second}
        assert coordinator.topology(subscription).partitions[A1] == Assignment(second)

    def test_a_join_that_is_refused_leaves_retired_sessions_as_they_are(self, coordinator, other, subscription):
        first, second = name(), name()
        coordinator.join(subscription, first, [A0])
        other.join(subscription, second, [A1])
        coordinator.retire(subscription, first)
        with pytest.raises(Conflict):
            other.join(subscription, name(), [A1])
        assert set(coordinator.topology(subscription).sessions) == {first, second}
        assert other.commit(subscription, first, [(A0, offset(1))]) == [True]

    def test_a_retired_session_keeps_its_partitions_and_gets_no_others(self, coordinator, other, subscription):
        retired, leaving, staying = name(), name(), name()
        for each in (retired, leaving, staying):
            coordinator.join(subscription, each)
        for key, assignment in coordinator.topology(subscription).partitions.items():
            coordinator.release(subscription, assignment.session, key)
        had = {key for key, each in other.topology(subscription).partitions.items() if each.session == retired}
        assert had
        coordinator.retire(subscription, retired)
        other.leave(subscription, leaving)
        owners = {key: each.owner for key, each in coordinator.topology(subscription).partitions.items()}
        assert owners == {key: retired if key in had else staying for key in ALL}

    def test_unknown_sessions_do_not_retire(self, coordinator, other, subscription, stream):
        other.retire(subscription, name())
        other.retire(name(), stream)
        assert not coordinator.topology(subscription).sessions[stream].retired

    # --- waking up ---

    def test_every_change_wakes_the_sessions_concerned(self, other, signals: Notifier, subscription):
        stream, second = name(), name()
        waiter = signals.watch([f"subscription:{subscription}", f"stream:{stream}"])
        for change in (
            lambda: other.join(subscription, stream),
            lambda: other.join(subscription, second, [A0]),
            lambda: other.commit(subscription, stream, [(A0, offset(1))]),
            lambda: other.commit(subscription, stream, [(A0, offset(1))]),
            lambda: other.release(subscription, stream, A0),
            lambda: other.retire(subscription, stream),
            lambda: other.leave(subscription, stream),
        ):
            change()
            assert waiter.wait(ENOUGH_S)
        waiter.close()

    def test_a_change_that_concerns_all_sessions_wakes_all(self, other, signals: Notifier, subscription):
        stream = name()
        other.join(subscription, stream)
        waiter = signals.watch([f"subscription:{subscription}"])
        for change in (
            lambda: other.extend(subscription, {EventTypePartition("a", "4"): BEFORE}),
            lambda: other.leave(subscription, stream),
            lambda: other.reset(subscription, {A0: offset(0)}, 0),
            lambda: other.delete(subscription),
        ):
            change()
            assert waiter.wait(ENOUGH_S)
        waiter.close()

    # --- ends ---

    def test_a_deleted_subscription_leaves_no_state(self, coordinator, other, subscription, stream):
        assert other.cursors(subscription)
        assert other.topology(subscription).sessions
        coordinator.delete(subscription)
        for each in (coordinator, other):
            assert each.cursors(subscription) == {}
            assert each.heartbeats(subscription) == {}
            assert each.topology(subscription).epoch == 0
            assert each.topology(subscription).partitions == {}
        with pytest.raises(Invalid):
            coordinator.commit(subscription, stream, [(A0, offset(1))])

    def test_initialised_subscriptions_are_listed_until_they_are_deleted(self, coordinator, other, subscription):
        second = name()
        other.initialise(second, ALL)
        assert {subscription, second} <= {*coordinator.initialised()}
        other.delete(subscription)
        assert second in coordinator.initialised()
        assert subscription not in coordinator.initialised()

    def test_closing_ends_the_sessions_of_this_process_alone(self, coordinator, other, subscription, stream):
        second = name()
        other.join(subscription, second)
        other.close()
        assert set(coordinator.topology(subscription).sessions) == {stream}
        assert set(coordinator.topology(subscription).partitions.values()) == {Assignment(stream)}
