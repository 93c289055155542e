"""Reading from a broker that fails, and whose events expire."""

import json
from itertools import islice
from uuid import uuid4

import pytest

from rioni.cli.events.across_partitions import entries
from rioni.cli.events.selecting import follow
from rioni.client import Unavailable
from rioni.client.ranges import Place, Range, Reader
from rioni.client.retries import FAILURES_SILENT, RETRY_S, Patience
from rioni.testing import Broker


HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def failing():
    with Broker() as broker:
        yield broker


@pytest.fixture
def orders(failing):
    """An event type whose ten events have expired, and which has two further ones."""
    name = f"orders-{uuid4()}"
    failing.create_event_type(name, options={"retention_time": 3 * HOUR_MS})
    failing.client().publish(name, [{"number": number} for number in range(10)])
    failing.advance(hours=4)
    failing.client().publish(name, [{"number": number} for number in range(10, 12)])
    return name


def _place(position):
    return Place(1, position)


def _numbers(pieces):
    return [json.loads(bytes(entry.event))["number"] for entry in entries(pieces)]


def test_events_that_expired_before_they_were_read_are_counted(failing, orders):
    reader = Reader(failing.client(), orders)
    assert _numbers(reader.read(Range("0", _place(3), _place(11), 8))) == [10, 11]
    assert reader.lost == 6
    assert _numbers(islice(follow(reader, {"0": _place(-1)}), 2)) == [10, 11]
    assert reader.lost == 16


def test_a_range_of_which_everything_has_expired_has_no_events(failing, orders):
    reader = Reader(failing.client(), orders)
    assert _numbers(reader.read(Range("0", _place(-1), _place(5), 6))) == []
    assert reader.lost == 10


def test_failures_that_pass_are_not_seen(failing, orders, monkeypatch):
    monkeypatch.setattr("rioni.client.retries.WAIT_FIRST_S", 0.0)
    reader = Reader(failing.client(), orders)
    failing.fail_next(503, count=3, path="/event-types/*/events", retry_after_s=0)
    assert _numbers(reader.read(Range("0", _place(9), _place(11), 2))) == [10, 11]
    failing.drop_next(path="/event-types/*/events")
    assert _numbers(islice(follow(reader, {"0": _place(9)}), 2)) == [10, 11]


def test_failures_that_stay_are_raised(failing, orders, monkeypatch):
    monkeypatch.setattr("rioni.client.retries.WAIT_FIRST_S", 0.0)
    notes = []
    # Time passes with the first note: there is none left for the next attempt.
    patience = Patience(note=notes.append, now_s=lambda: len(notes) * RETRY_S)
    reader = Reader(failing.client(), orders, patience=lambda: patience)
    failing.fail_next(503, count=FAILURES_SILENT + 1, path="/event-types/*/events", retry_after_s=0)
    with pytest.raises(Unavailable):
        list(reader.read(Range("0", _place(9), _place(11), 2)))
    assert len(notes) == 1
