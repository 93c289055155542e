import threading

import pytest

from rioni.cli.publishing.publishing import BATCH_BYTES_MAX, BatchPublisher, Line, Upload, as_they_arrive
from rioni.cli.publishing.records import FileEvent, Unreadable
from rioni.domain.errors import Invalid
from tests.cli.publishing.test_publishing import Broker
from tests.support.waiting import WAIT_S


def _lines(*texts):
    return [
        Line("file", Unreadable(n, "no JSON", text) if text == b"?" else FileEvent(n, text))
        for n, text in enumerate(texts, 1)
    ]


def _complete(event):
    if event == b"no key":
        raise Invalid("it has no key")
    return event


def _upload(broker, *, batch=2, once=False, stop=True):
    rejected = []
    upload = Upload(
        BatchPublisher(broker.publish, repeats=once, stop=stop),
        complete=_complete,
        event_type="orders",
        batch=batch,
        once=once,
        stop=stop,
        rejected=rejected.append,
    )
    return upload, rejected


def test_events_are_published_in_batches_in_order():
    broker = Broker()
    upload, rejected = _upload(broker)
    totals = upload.publish(_lines(b"a", b"b", b"c"))
    assert (broker.stored, len(broker.keys), totals.stored, rejected) == ([b"a", b"b", b"c"], 2, 3, [])


def test_a_batch_has_few_bytes():
    large = b"x" * (BATCH_BYTES_MAX // 2 + 1)
    broker = Broker(bytes_max=BATCH_BYTES_MAX)
    _upload(broker, batch=10)[0].publish(_lines(large, large, b"a"))
    assert len(broker.keys) == 2


@pytest.mark.parametrize("first", [b"bad", b"no key"])
@pytest.mark.parametrize("second", [b"bad", b"no key"])
def test_the_first_event_that_is_refused_ends_it_and_what_stands_before_is_stored(first, second):
    broker = Broker()
    upload, rejected = _upload(broker, batch=3)
    totals = upload.publish(_lines(b"a", b"b", b"c", b"d", first, second, b"e"))
    assert broker.stored == [b"a", b"b", b"c", b"d"]
    assert [(each.source, each.line, each.text) for each in rejected] == [("file", 5, first)]
    assert (totals.stored, totals.rejected) == (4, 1)


@pytest.mark.parametrize("first", [b"bad", b"no key", b"x"])
def test_nothing_of_a_batch_with_something_unreadable_is_published(first):
    broker = Broker()
    upload, rejected = _upload(broker, batch=3)
    with pytest.raises(Invalid, match="file:5: no JSON; its batch was not published"):
        upload.publish(_lines(b"a", b"b", b"c", first, b"?", b"e"))
    assert broker.stored == [b"a", b"b", b"c"]
    assert (rejected, upload.totals.stored) == ([], 3)


def test_where_it_goes_on_all_that_is_refused_is_told_in_order():
    broker = Broker()
    upload, rejected = _upload(broker, batch=3, stop=False)
    totals = upload.publish(_lines(b"bad", b"a", b"?", b"no key", b"b", b"bad", b"c"))
    assert broker.stored == [b"a", b"b", b"c"]
    assert [(each.line, each.step) for each in rejected] == [
        (1, "validating"),
        (3, "reading"),
        (4, "reading"),
        (6, "validating"),
    ]
    assert (totals.stored, totals.rejected, totals.unreadable) == (3, 4, 1)


def test_keys_from_the_content_are_the_same_for_a_repetition_and_differ_by_place():
    keys = []
    for _ in range(2):
        broker = Broker()
        _upload(broker, once=True)[0].publish(_lines(b"a", b"b", b"a", b"b", b"a"))
        keys.append(broker.keys)
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 3


def test_other_keys_are_new_at_each_run():
    keys = set()
    for _ in range(2):
        broker = Broker()
        _upload(broker)[0].publish(_lines(b"a"))
        keys.update(broker.keys)
    assert len(keys) == 2


def test_events_of_a_pipe_do_not_wait_for_a_full_batch():
    more = threading.Event()

    def slowly():
        yield from _lines(b"a")
        more.wait(WAIT_S)
        yield from _lines(b"b")

    broker = Broker()
    upload, _ = _upload(broker, batch=100)
    for line in as_they_arrive(slowly()):
        upload.publish([line])
        if line is None:
            more.set()
    assert broker.stored == [b"a", b"b"]


def test_an_error_of_reading_a_pipe_is_not_lost():
    def broken():
        yield from _lines(b"a")
        raise Invalid("the file broke")

    with pytest.raises(Invalid, match="the file broke"):
        list(as_they_arrive(broken()))
