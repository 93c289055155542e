"""How streams find events that nobody ever commits (reference streams#dead-letter-handling)."""

import pytest

from rioni.domain.streaming.dead_letters import Failures
from rioni.domain.streaming.messages import Reason
from rioni.domain.streaming.sending import DEAD_LETTER_RETRY_S
from rioni.domain.subscriptions.dead_letter_policy import Policy
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


def test_without_a_policy_nothing_is_noted():
    driver = subscription()
    driver.publish(A, 10)
    driver.commit(A, 3)
    assert driver.attempts == []


def test_what_is_sent_is_noted_before_and_again_only_after_a_commit_beyond():
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
def test_too_many_failures_begin_a_search_as_far_as_a_batch_reaches(times):
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


def test_a_search_goes_on_in_the_next_stream():
    driver = stream(Failures(2, failed=place(1), search_until=place(2)), batch_limit=3)
    driver.publish(A, 6)
    assert events(driver) == [[0]]
    driver.commit(A, 2)
    assert events(driver) == [[3, 4, 5]]
    assert driver.attempts == [(A, 0, None), (A, 5, None)]


def test_a_search_that_was_finished_does_not_go_on():
    driver = stream(Failures(1, failed=place(1), search_until=place(-1)), batch_limit=3)
    driver.publish(A, 6)
    assert events(driver) == [[0, 1, 2], [3, 4, 5]]


def test_the_event_that_has_failed_alone_is_buried_and_the_search_goes_on_behind_it():
    driver = stream(SUSPECT, batch_limit=3)
    driver.publish(A, 9)
    assert driver.buried == [(A, 0)]
    assert events(driver) == [[1]]
    assert driver.attempts == [(A, 1, None)]
    driver.commit(A, 4)
    assert events(driver) == [[5, 6, 7]]


def test_hidden_events_around_a_dead_letter_are_committed_with_and_after_it():
    driver = stream(Failures(3, failed=place(1), search_until=place(9)))
    driver.publish_hidden(A, "x.x.")
    assert driver.buried == [(A, 1)]
    assert events(driver) == [[3]]
    driver.wait(10)
    assert driver.ownership[A].committed == place(2)


def test_what_is_in_the_place_of_a_suspect_that_has_gone_is_innocent():
    driver = stream(SUSPECT, batch_limit=3)
    driver.publish_hidden(A, "x..")
    assert driver.buried == []
    assert events(driver) == [[1]]
    assert driver.attempts == [(A, 1, 4)]


def test_a_burial_that_fails_is_tried_again_and_keeps_nobody_waiting():
    driver = stream(SUSPECT, batch_limit=1)
    driver.own(B)
    driver.buries = False
    driver.publish(A, 3)
    driver.publish(B, 2)
    assert events(driver) == [[0], [1]]
    driver.wait(DEAD_LETTER_RETRY_S)
    assert driver.buried == [(A, 0)] * 2
    driver.buries = True
    driver.wait(DEAD_LETTER_RETRY_S)
    assert driver.buried == [(A, 0)] * 3
    assert events(driver) == [[1]]
    driver.wait(10 * DEAD_LETTER_RETRY_S - 1)
    assert len(driver.buried) == 3


def test_other_partitions_go_on_while_one_is_searched():
    """Reference streams#search."""
    driver = stream(Failures(3, failed=place(0)), batch_limit=2)
    driver.own(B)
    driver.publish(A, 4)
    driver.publish(B, 4)
    assert events(driver) == [[0], [0, 1], [2, 3]]
    driver.commit(B, 3)
    driver.publish(B, 2)
    assert events(driver) == [[4, 5]]


def test_what_a_search_holds_back_takes_no_memory():
    driver = stream(Failures(3, failed=place(0)), memory_bytes_max=4)
    driver.own(B)
    driver.publish(A, 9)
    driver.publish(B, 1)
    assert events(driver) == [[0], [0]]


def test_a_search_keeps_to_the_window_and_to_the_limit():
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
    assert driver.buried == []


def test_a_partition_that_is_wanted_elsewhere_is_released_with_its_dead_letter():
    driver = stream(SUSPECT)
    driver.buries = False
    driver.publish(A, 2)
    driver.want(A)
    assert driver.released == [A]


def test_the_next_batch_after_a_change_of_partitions_says_what_failed():
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
