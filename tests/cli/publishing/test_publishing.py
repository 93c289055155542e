import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.publishing.publishing import BatchOutcome, BatchPublisher, Refusal
from rioni.client import BadRequest, ItemResult, PublishingFailed, TooLarge, Unprocessable
from rioni.client.errors import problem


class Broker:
    """Stores batches, and refuses those with an event that begins with `bad`, as brokers do."""

    def __init__(self, bytes_max=1_000, partly=0):
        self.stored: list[bytes] = []
        self.keys: list[str] = []
        self.bytes_max, self.partly = bytes_max, partly

    def publish(self, events, key):
        self.keys.append(key)
        if sum(map(len, events)) > self.bytes_max:
            raise problem(413, {"title": "Too large"}, request="POST", retry_after_s=None)
        if any(event.startswith(b"unreadable") for event in events):
            raise problem(400, {"detail": "not JSON"}, request="POST", retry_after_s=None)
        for index, event in enumerate(events):
            if event.startswith(b"bad"):
                raise PublishingFailed("orders", _results(len(events), index, "validating", "bad event"))
        if self.partly:
            self.partly -= 1
            raise PublishingFailed("orders", _results(len(events), 0, "publishing", "timed out"))
        self.stored += events


def _problem(status, detail):
    return problem(status, {"detail": detail}, request="POST", retry_after_s=None)


def _results(count, failed, step, detail):
    results = [ItemResult(publishing_status="aborted")] * count
    results[failed] = ItemResult(publishing_status="failed", step=step, detail=detail)
    return results


def test_a_good_batch_is_one_request_under_its_key():
    broker = Broker()
    assert BatchPublisher(broker.publish).publish([b"a", b"b"], "key") == BatchOutcome(2, [])
    assert (broker.stored, broker.keys) == ([b"a", b"b"], ["key"])


def test_nothing_is_sent_for_an_empty_batch():
    broker = Broker()
    assert BatchPublisher(broker.publish).publish([], "key") == BatchOutcome(0, [])
    assert broker.keys == []


def test_what_stands_before_a_refused_event_is_stored_and_what_stands_behind_it_is_not():
    broker = Broker()
    outcome = BatchPublisher(broker.publish).publish([b"a", b"bad", b"b", b"bad"], "key")
    assert outcome == BatchOutcome(1, [Refusal(1, "validating", "bad event")])
    assert broker.stored == [b"a"]


@given(st.lists(st.sampled_from([b"a", b"b", b"bad", b"unreadable", b"larger than all that"])))
def test_all_others_are_stored_once_and_in_their_order(events):
    broker = Broker(bytes_max=15)
    outcome = BatchPublisher(broker.publish, stop=False).publish(events, "key")
    good = [event for event in events if event in (b"a", b"b")]
    assert broker.stored == good
    assert outcome.stored == len(good)
    assert [each.number for each in outcome.refused] == [
        n for n, event in enumerate(events) if event not in (b"a", b"b")
    ]
    assert len(set(broker.keys)) == len(broker.keys)


def test_a_batch_whose_outcome_stays_unknown_is_an_error():
    broker = Broker(partly=1)
    with pytest.raises(PublishingFailed, match="timed out"):
        BatchPublisher(broker.publish, stop=False).publish([b"a"], "key")
    assert broker.keys == ["key"]


def _reused(events, key):
    detail = "Idempotency-Key: another batch was stored under this key"
    raise problem(422, {"detail": detail}, request="POST", retry_after_s=None)


def test_a_key_from_the_content_that_was_used_means_that_the_batch_is_stored():
    assert BatchPublisher(_reused, repeats=True).publish([b"a"], "key") == BatchOutcome(1, [])
    with pytest.raises(Unprocessable):
        BatchPublisher(_reused).publish([b"a"], "key")


@pytest.mark.parametrize("refusal", [BadRequest, TooLarge])
def test_a_single_event_that_is_too_large_or_unreadable_is_refused(refusal):
    broker = Broker(bytes_max=20)
    event = b"unreadable" if refusal is BadRequest else b"x" * 21
    outcome = BatchPublisher(broker.publish).publish([event], "key")
    assert [(each.number, each.step) for each in outcome.refused] == [(0, "validating")]


@pytest.mark.parametrize("ex", [_problem(401, "who?"), _problem(403, "no"), _problem(500, "broken"), _problem(503, "")])
def test_what_is_not_about_events_is_raised(ex):
    with pytest.raises(type(ex)):
        BatchPublisher(lambda *_: (_ for _ in ()).throw(ex)).publish([b"a"], "key")
