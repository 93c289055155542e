"""The contract of the port `Coordinator` for failed delivery attempts of partitions.

Source: reference streams#dead-letter-handling, streams#failures.
"""

import pytest

from rioni.domain.errors import Invalid
from rioni.domain.ports.coordinator import DeliveryFailure
from tests.contracts.coordination import A0, A1, A2, ENOUGH_S, CoordinationSuite, name, offset


class FailureContract(CoordinationSuite):
    def test_at_first_no_partition_has_failures(self, coordinator, other, subscription, stream):
        coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
        assert coordinator.delivery_failures(subscription) == other.delivery_failures(subscription) == {}
        assert coordinator.delivery_failures(name()) == {}

    def test_each_end_of_a_session_with_uncommitted_events_is_a_failure(self, coordinator, other, subscription):
        for times in range(1, 4):
            stream = name()
            coordinator.join(subscription, stream)
            coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
            coordinator.record_delivery_attempt(subscription, stream, A1, offset(times))
            coordinator.leave(subscription, stream)
            assert other.delivery_failures(subscription) == {
                A0: DeliveryFailure(times, offset(4), ""),
                A1: DeliveryFailure(times, offset(times), ""),
            }

    def test_a_session_that_has_sent_nothing_since_its_last_commit_has_not_failed(self, coordinator, subscription):
        for sends in (True, False):
            stream = name()
            coordinator.join(subscription, stream)
            if sends:
                coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
            coordinator.leave(subscription, stream)
        assert coordinator.delivery_failures(subscription) == {A0: DeliveryFailure(1, offset(4), "")}

    @pytest.mark.parametrize(("position", "times"), [(3, 1), (4, 0), (5, 0)])
    def test_only_partitions_with_uncommitted_events_have_failed(
        self, coordinator, subscription, stream, position, times
    ):
        coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
        coordinator.commit(subscription, stream, [(A0, offset(position))])
        coordinator.leave(subscription, stream)
        expected = {A0: DeliveryFailure(times, offset(4), "")} if times else {}
        assert coordinator.delivery_failures(subscription) == expected

    @pytest.mark.parametrize(("position", "times"), [(-1, 1), (2, 1), (3, 0)])
    def test_a_commit_that_advances_resets_the_failures(self, coordinator, subscription, stream, position, times):
        coordinator.commit(subscription, stream, [(A0, offset(2))])
        coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
        coordinator.leave(subscription, stream)
        second = name()
        coordinator.join(subscription, second)
        coordinator.commit(subscription, second, [(A0, offset(position))])
        assert [failure.failures for failure in coordinator.delivery_failures(subscription).values()] == [times] * times

    def test_handing_over_uncommitted_events_is_a_failure(self, coordinator, other, subscription, stream):
        coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
        coordinator.record_delivery_attempt(subscription, stream, A1, offset(4))
        coordinator.commit(subscription, stream, [(A1, offset(4))])
        second = name()
        other.join(subscription, second, [A0, A1])
        for key in (A0, A1, A2):
            coordinator.release(subscription, stream, key)
        assert coordinator.delivery_failures(subscription) == {A0: DeliveryFailure(1, offset(4), "")}
        coordinator.leave(subscription, stream)
        assert coordinator.delivery_failures(subscription) == {A0: DeliveryFailure(1, offset(4), "")}

    @pytest.mark.usefixtures("stream")
    def test_only_the_owner_of_a_partition_can_record_failures(self, coordinator, subscription):
        second = name()
        coordinator.join(subscription, second, [A0])
        for each in (second, name()):
            coordinator.record_delivery_attempt(subscription, each, A0, offset(4), offset(9))
            coordinator.leave(subscription, each)
        assert coordinator.delivery_failures(subscription) == {}

    def test_a_poison_search_resets_failures_and_is_stored_until_it_ends(self, coordinator, other, subscription):
        for until in (None, offset(5)):
            stream = name()
            coordinator.join(subscription, stream)
            coordinator.record_delivery_attempt(subscription, stream, A0, offset(4), until)
            coordinator.leave(subscription, stream)
        assert other.delivery_failures(subscription) == {A0: DeliveryFailure(1, offset(4), offset(5))}
        other.join(subscription, stream)
        other.record_delivery_attempt(subscription, stream, A0, offset(4))
        for position, expected in ((4, {A0: DeliveryFailure(0, offset(4), offset(5))}), (5, {})):
            other.commit(subscription, stream, [(A0, offset(position))])
            assert coordinator.delivery_failures(subscription) == expected

    def test_a_cursor_reset_resets_the_failures_of_its_partitions(self, coordinator, subscription, stream):
        for key in (A0, A1):
            coordinator.record_delivery_attempt(subscription, stream, key, offset(4), offset(9))
        coordinator.leave(subscription, stream)
        coordinator.reset(subscription, {A0: offset(2)}, ENOUGH_S)
        assert coordinator.delivery_failures(subscription) == {A1: DeliveryFailure(1, offset(4), offset(9))}

    def test_a_process_that_ends_has_failed_its_partitions_with_uncommitted_events(
        self, coordinator, other, subscription
    ):
        stream = name()
        other.join(subscription, stream)
        other.record_delivery_attempt(subscription, stream, A0, offset(4))
        other.record_delivery_attempt(subscription, stream, A1, offset(4))
        other.commit(subscription, stream, [(A1, offset(4))])
        other.close()
        assert coordinator.delivery_failures(subscription) == {A0: DeliveryFailure(1, offset(4), "")}

    def failed(self, coordinator, subscription, stream, *reasons):
        """Fail partition A0 with a stream that gives reasons, by position."""
        coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
        coordinator.record_failure_reasons(subscription, stream, [(A0, offset(at), text) for at, text in reasons])
        coordinator.leave(subscription, stream)

    def test_a_partition_has_the_last_reason_of_its_consumers_with_the_offset_of_its_event(
        self, coordinator, other, subscription, stream
    ):
        self.failed(coordinator, subscription, stream, (3, "first"), (2, "sécond 🙂"))
        expected = DeliveryFailure(1, offset(4), "", offset(2), "sécond 🙂")
        assert coordinator.delivery_failures(subscription) == other.delivery_failures(subscription) == {A0: expected}
        second = name()
        other.join(subscription, second)
        self.failed(other, subscription, second)
        assert coordinator.delivery_failures(subscription) == {A0: expected._replace(failures=2)}

    @pytest.mark.parametrize(("position", "kept"), [(1, True), (2, False), (3, False)])
    def test_a_commit_that_reaches_an_event_clears_its_reason(
        self, coordinator, other, subscription, stream, position, kept
    ):
        coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
        coordinator.record_failure_reasons(subscription, stream, [(A0, offset(2), "why")])
        coordinator.commit(subscription, stream, [(A0, offset(position))])
        coordinator.leave(subscription, stream)
        reason = (offset(2), "why") if kept else ()
        assert other.delivery_failures(subscription) == {A0: DeliveryFailure(1, offset(4), "", *reason)}

    def test_a_reason_for_what_is_committed_changes_nothing(self, coordinator, subscription, stream):
        coordinator.commit(subscription, stream, [(A0, offset(2))])
        self.failed(coordinator, subscription, stream, (3, "why"), (2, "late"), (1, "later"))
        expected = DeliveryFailure(1, offset(4), "", offset(3), "why")
        assert coordinator.delivery_failures(subscription) == {A0: expected}
        coordinator.join(subscription, second := name())
        coordinator.record_failure_reasons(subscription, second, [(A0, offset(2), "latest")])
        assert coordinator.delivery_failures(subscription) == {A0: expected}

    def test_a_cursor_reset_clears_the_reasons_of_its_partitions(self, coordinator, subscription, stream):
        coordinator.record_delivery_attempt(subscription, stream, A1, offset(4))
        coordinator.record_failure_reasons(subscription, stream, [(A1, offset(3), "why")])
        self.failed(coordinator, subscription, stream, (3, "why"))
        coordinator.reset(subscription, {A0: offset(2)}, ENOUGH_S)
        coordinator.join(subscription, second := name())
        self.failed(coordinator, subscription, second)
        assert coordinator.delivery_failures(subscription) == {
            A0: DeliveryFailure(1, offset(4), ""),
            A1: DeliveryFailure(1, offset(4), "", offset(3), "why"),
        }

    def test_only_the_owner_of_all_its_partitions_can_record_reasons(self, coordinator, other, subscription, stream):
        coordinator.record_delivery_attempt(subscription, stream, A0, offset(4))
        other.join(subscription, second := name(), [A1])
        coordinator.release(subscription, stream, A1)
        reasons = [(A0, offset(3), "why"), (A1, offset(3), "why")]
        for each in (stream, second, name()):
            with pytest.raises(Invalid):
                coordinator.record_failure_reasons(subscription, each, reasons)
        coordinator.leave(subscription, stream)
        with pytest.raises(Invalid):
            coordinator.record_failure_reasons(subscription, stream, reasons[:1])
        assert coordinator.delivery_failures(subscription) == {A0: DeliveryFailure(1, offset(4), "")}
