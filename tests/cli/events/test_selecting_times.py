import json
from datetime import UTC, datetime, timedelta

import pytest

from rioni.cli.events.across_partitions import entries
from rioni.cli.events.selecting import Selection, at_time, between, ends, starts
from rioni.client import Client
from rioni.client.ranges import Locator, Place, RangeError, Reader
from rioni.domain.errors import Invalid
from rioni.domain.timestamps import time_of


class OtherServer(Client):
    """A client of a server that knows no places by time, as the original."""

    def __init__(self, url):
        super().__init__(url)
        self.partitions.shift = self._without_times(self.partitions.shift)

    @staticmethod
    def _without_times(shift):
        return lambda name, cursors: shift(
            name, [each if each.timestamp is None else type(each)(partition=each.partition) for each in cursors]
        )


@pytest.fixture
def other(broker):
    with OtherServer(broker.url) as client:
        yield client


def _at(client, name, time):
    locator = Locator(client, name)
    return at_time(locator, locator.bounds(), time)


def test_a_place_by_time_is_before_the_first_event_that_was_stored_then_or_later(client, other, event_type):
    name = event_type(2)
    for number in range(5):
        client.publish(name, [{"key": key, "number": number} for key in "ab"])
    reader = Reader(client, name)
    bounds = reader.locator.bounds()
    whole = between(
        reader.locator,
        starts(reader.locator, bounds, Selection(), from_end=False),
        ends(reader.locator, bounds, Selection()),
    )
    times = sorted({time_of(entry.event) for part in whole for entry in entries(reader.read(part))})
    # Events are stored a moment after they were received: the requested times are those of the other server.
    for time in [*times, times[0] - timedelta(hours=1), times[-1] + timedelta(milliseconds=1)]:
        expected = {name: Place(1, -1) for name in bounds}
        for part in whole:
            for entry in entries(reader.read(part)):
                if time_of(entry.event) < time:
                    expected[entry.partition] = entry.place
        assert _at(other, name, time) == expected
    now = datetime.now(UTC)
    assert _at(client, name, now + timedelta(hours=1)) == {name: each.newest for name, each in bounds.items()}
    assert _at(client, name, now - timedelta(hours=1)) == {name: Place(1, -1) for name in bounds}


def test_events_without_times_on_a_server_without_places_by_time_are_an_error(client, other, event_type):
    name = event_type(category="undefined", enrichment_strategies=[])
    client.publish(name, [{"key": "a"}])
    with pytest.raises(Invalid, match="Give offsets instead of times"):
        _at(other, name, datetime.now(UTC))


def test_a_partition_that_does_not_exist_is_named(client, event_type):
    with pytest.raises(RangeError, match="has no partition 7; it has 0, 1"):
        Locator(client, event_type(2)).bounds(["7"])


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"metadata": {"received_at": "2026-01-01T00:00:00Z", "occurred_at": "2025-01-01T00:00:00Z"}}, 2026),
        ({"metadata": {"occurred_at": "2025-01-01T00:00:00+02:00"}}, 2025),
        ({"metadata": {"occurred_at": "2025-01-01T00:00:00"}}, 2025),
        ({"metadata": {"occurred_at": "yesterday"}}, None),
        ({"metadata": {"occurred_at": 7}}, None),
        ({"metadata": 1}, None),
        ({}, None),
    ],
)
def test_the_time_of_an_event_is_that_of_its_metadata(event, expected):
    found = time_of(json.dumps(event).encode())
    assert (found and found.year) == expected
    assert found is None or found.tzinfo is not None
