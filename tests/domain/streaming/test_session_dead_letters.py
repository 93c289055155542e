"""How streams detect events that consumers fail to process (reference streams#dead-letter-handling)."""

import pytest

from rioni.domain.streaming.messages import Reason
from rioni.domain.streaming.sending import DEAD_LETTER_RETRY_S
from rioni.domain.subscriptions.dead_letters import Failures, Policy
from tests.domain.streaming.driver import A, B, Driver, place, subscription


POLICY = Policy(send_count=3, keeps=True)
SUSPECT = Failures(3, failed=place(0), search_until=place(4))


def stream(failures: Failures, **changes) -> Driver:
    driver = subscription(POLICY, **changes)
    driver.ownership.clear()
    driver.own(failures=Failures())
    driver.own(A, failures=failures)
    driver.taken()
    return driver


def events(driver: Driver) -> list[list[int]]:
    return [batch.events for batch in driver.taken() if batch.events]


def test_without_a_policy_no_attempt_is_recorded():
    driver = subscription()
    driver.publish(A, 10)
    driver.commit(A, 3)
    assert driver.attempts == []


def test_an_attempt_is_recorded_before_sending_and_again_only_after_a_commit_beyond_it():
    driver = subscription(POLICY, batch_limit=2)
    driver.publish(A, 6)
    assert driver.attempts == [(A, 1, None)]
    driver.commit(A, 0)
    assert driver.attempts == [(A, 1, None)]
    driver.commit(A, 1)
    assert driver.attempts == [(A, 1, None), (A, 5, None)]
    driver.commit(A, 5)
    driver.publish(A, 2)
    assert driver.attempts == [(A, 1, None), (A, 5, None), (A, 7, None)]


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_few_failures_change_nothing(times):
    """Reference streams#search."""
    driver = stream(Failures(times, failed=place(4)), batch_limit=5)
    driver.publish(A, 5)
    assert events(driver) == [[0, 1, 2, 3, 4]]
    assert driver.attempts == [(A, 4, None)]


@pytest.mark.parametrize("times", [3, 4])
def test_too_many_failures_start_a_search_over_the_size_of_a_batch(times):
    """Reference streams#search."""
    driver = stream(Failures(times, failed=place(4)), batch_limit=3)
    driver.publish(A, 9)
    for position in range(3):
        assert events(driver) == [[position]]
        driver.wait(5)
        assert events(driver) == []
        driver.commit(A, position)
    assert driver.attempts == [(A, 0, 2), (A, 1, None), (A, 2, None), (A, 5, None)]
    assert events(driver) == [[3, 4, 5], [6, 7, 8]]


def test_a_search_continues_in_the_next_stream():
    driver = stream(Failures(2, failed=place(1), search_until=place(2)), batch_limit=3)
    driver.publish(A, 6)
    assert events(driver) == [[0]]
    driver.commit(A, 2)
    assert events(driver) == [[3, 4, 5]]
    assert driver.attempts == [(A, 0, None), (A, 5, None)]


def test_a_finished_search_does_not_continue():
    driver = stream(Failures(1, failed=place(1), search_until=place(-1)), batch_limit=3)
    driver.publish(A, 6)
    assert events(driver) == [[0, 1, 2], [3, 4, 5]]


def test_an_event_that_failed_alone_becomes_a_dead_letter_and_the_search_continues():
    driver = stream(SUSPECT, batch_limit=3)
    driver.publish(A, 9)
    assert driver.dead_lettered == [(A, 0)]
    assert events(driver) == [[1]]
    assert driver.attempts == [(A, 1, None)]
    driver.commit(A, 4)
    assert events(driver) == [[5, 6, 7]]


def test_hidden_events_around_a_dead_letter_are_committed_with_and_after_it():
    driver = stream(Failures(3, failed=place(1), search_until=place(9)))
    driver.publish_hidden(A, "x.x.")
    assert driver.dead_lettered == [(A, 1)]
    assert events(driver) == [[3]]
    driver.wait(10)
    assert driver.ownership[A].committed == place(2)


def test_the_event_behind_a_hidden_suspect_is_not_suspected():
    driver = stream(SUSPECT, batch_limit=3)
    driver.publish_hidden(A, "x..")
    assert driver.dead_lettered == []
    assert events(driver) == [[1]]
    assert driver.attempts == [(A, 1, 4)]


def test_failed_dead_lettering_is_retried_and_delays_no_other_partition():
    driver = stream(SUSPECT, batch_limit=1)
    driver.own(B)
    driver.can_dead_letter = False
    driver.publish(A, 3)
    driver.publish(B, 2)
    assert events(driver) == [[0], [1]]
    driver.wait(DEAD_LETTER_RETRY_S)
    assert driver.dead_lettered == [(A, 0)] * 2
    driver.can_dead_letter = True
    driver.wait(DEAD_LETTER_RETRY_S)
    assert driver.dead_lettered == [(A, 0)] * 3
    assert events(driver) == [[1]]
    driver.wait(10 * DEAD_LETTER_RETRY_S - 1)
    assert len(driver.dead_lettered) == 3


def test_other_partitions_continue_during_a_search():
    """Reference streams#search."""
    driver = stream(Failures(3, failed=place(0)), batch_limit=2)
    driver.own(B)
    driver.publish(A, 4)
    driver.publish(B, 4)
    assert events(driver) == [[0], [0, 1], [2, 3]]
    driver.commit(B, 3)
    driver.publish(B, 2)
    assert events(driver) == [[4, 5]]


def test_events_held_back_by_a_search_take_no_memory():
    driver = stream(Failures(3, failed=place(0)), memory_bytes_max=4)
    driver.own(B)
    driver.publish(A, 9)
    driver.publish(B, 1)
    assert events(driver) == [[0], [0]]


def test_a_search_respects_window_and_stream_limit():
    driver = stream(Failures(3, failed=place(0)), batch_limit=5, stream_limit=2)
    driver.publish(A, 5)
    driver.commit(A, 0)
    driver.commit(A, 1)
    assert events(driver) == [[0], [1]]
    assert driver.closed is Reason.STREAM_LIMIT


def test_an_event_that_is_not_committed_in_time_ends_the_stream_in_a_search_too():
    driver = stream(Failures(3, failed=place(0)))
    driver.publish(A, 5)
    driver.wait(60)
    assert driver.closed is Reason.COMMIT_TIMEOUT
    assert driver.dead_lettered == []


def test_a_requested_partition_is_released_with_its_dead_letter():
    driver = stream(SUSPECT)
    driver.can_dead_letter = False
    driver.publish(A, 2)
    driver.want(A)
    assert driver.released == [A]


def test_the_next_batch_after_a_change_of_partitions_reports_the_failures():
    driver = subscription(POLICY, batch_limit=1)
    driver.own(B, failures=Failures(3, failed=place(0), search_until=place(4)))
    driver.publish(A, 1)
    (batch,) = driver.taken()
    assert batch.info == (
        "Stream started; Auto DLQ failed commits tracking: {a:0 failedCommitsCount=0 lastDeadLetterOffset=null}, "
        "{a:1 failedCommitsCount=3 lastDeadLetterOffset=001-0001-000000000000000004}"
    )
    driver.commit(A, 0)
    driver.publish(A, 1)
    assert [batch.info for batch in driver.taken()] == [""]
