import contextlib
import json
from itertools import islice
from urllib.parse import urlsplit

import pytest

from rioni.cli.events import selecting
from rioni.cli.events.across_partitions import entries, last_events
from rioni.cli.events.selecting import Selection, between, ends, follow, starts
from rioni.client import Client, NotFound, metadata, ranges
from rioni.client.ranges import Place, RangeError, Reader
from tests.support.tcp_proxy import TcpProxy


def _ranges(reader, **selection):
    bounds = reader.locator.bounds()
    wanted = Selection(**selection)
    places = starts(reader.locator, bounds, wanted, from_end=False)
    return between(reader.locator, places, ends(reader.locator, bounds, wanted))


def _read(reader, **selection):
    """The numbers of the events read, with their places, and the place up to which each partition was read."""
    found, read_to = [], {}
    for part in _ranges(reader, **selection):
        for piece in reader.read(part):
            read_to[piece.partition] = piece.read_to
            found += [(json.loads(bytes(each.event))["number"], each.place) for each in entries([piece])]
    return found, read_to


def _publish(client, name, numbers, key="a"):
    client.publish(name, [{"key": key, "number": number} for number in numbers])


def _place(position, order=1):
    return Place(order, position)


def test_all_events_of_a_partition_are_read_with_their_places(client, event_type):
    name = event_type()
    _publish(client, name, range(1_100))
    assert _read(Reader(client, name)) == ([(n, _place(n)) for n in range(1_100)], {"0": _place(1_099)})


def test_large_events_are_read_in_small_pieces(client, event_type, monkeypatch):
    monkeypatch.setattr(ranges, "PIECE_BYTES", 3_000)
    name = event_type()
    _publish(client, name, range(1_000))
    reader = Reader(client, name)
    (part,) = _ranges(reader)
    sizes = [len(piece.events) for piece in reader.read(part)]
    assert sum(sizes) == 1_000
    assert max(sizes[1:]) < 20 < sizes[0]


def test_an_event_type_without_events_has_nothing_to_read(client, event_type):
    assert _ranges(Reader(client, event_type(3))) == []


@pytest.fixture
def compacted(client, event_type):
    """An event type with the numbers 0 and 1 at positions 1 and 4, and deletions before, between and after them."""
    name = event_type(cleanup_policy="compact")

    def event(number):
        return {"key": "a", "number": number, "metadata": metadata(partition_compaction_key=str(number))}

    for step in "d", 0, "d", "d", 1, "d", "d":
        if step == "d":
            client.delete_events(name, [{"key": "a", "metadata": {"partition_compaction_key": "gone"}}])
        else:
            client.publish(name, [event(step)])
    return name


def test_events_between_deletions_have_their_exact_places(client, compacted):
    found, read_to = _read(Reader(client, compacted))
    assert found == [(0, _place(1)), (1, _place(4))]
    assert read_to == {"0": _place(6)}


def test_a_range_that_ends_between_events_is_exact(client, compacted):
    reader = Reader(client, compacted)
    (whole,) = _ranges(reader)
    for to in (1, 3, 4):
        part = whole._replace(to=_place(to), positions=to + 1)
        found = [entry.place.position for entry in entries(reader.read(part))]
        assert found == [position for position in (1, 4) if position <= to]


def test_a_range_of_deletions_alone_is_read_to_its_end(client, compacted):
    assert _read(Reader(client, compacted), from_offset="001-0001-000000000000000005") == ([], {"0": _place(6)})


def test_reading_goes_on_across_timelines(client, event_type):
    name = event_type()
    _publish(client, name, range(3))
    client.timelines.create(name, "second")
    client.timelines.create(name, "default")
    _publish(client, name, range(3, 5))
    found, read_to = _read(Reader(client, name))
    assert found == [*((n, _place(n)) for n in range(3)), (3, _place(0, 3)), (4, _place(1, 3))]
    assert read_to == {"0": _place(1, 3)}


def test_a_range_up_to_the_beginning_of_a_timeline_is_that_of_the_one_before(client, event_type):
    name = event_type()
    _publish(client, name, range(3))
    client.timelines.create(name, "second")
    reader = Reader(client, name)
    (part,) = _ranges(reader)
    part = part._replace(to=_place(-1, 2))
    assert [piece.events for piece in reader.read(part)] == [piece.events for piece in reader.read(part)]
    assert sum(len(piece.events) for piece in reader.read(part)) == 3


@pytest.fixture
def proxy(broker):
    address = urlsplit(broker.url)
    with contextlib.closing(TcpProxy((address.hostname, address.port))) as proxy:
        yield proxy


def test_a_stream_that_breaks_goes_on_behind_the_last_event(client, event_type, proxy):
    name = event_type()
    _publish(client, name, range(3_000))
    found = []
    with Client(f"http://{proxy.address}") as other:
        reader = Reader(other, name)
        (part,) = _ranges(reader)
        for piece in reader.read(part):
            found += [json.loads(bytes(event))["number"] for event in piece.events]
            proxy.break_off()
    assert found == list(range(3_000))


def test_following_goes_on_behind_the_last_event_when_the_stream_breaks(client, event_type, proxy):
    name = event_type(2)
    found = []
    with Client(f"http://{proxy.address}") as other:
        reader = Reader(other, name)
        _publish(client, name, [0])
        for piece in follow(reader, {"0": _place(-1), "1": _place(-1)}):
            found += [json.loads(bytes(event))["number"] for event in piece.events]
            if piece.events:
                proxy.break_off()
                _publish(client, name, [found[-1] + 1], key="b")
            if len(found) == 4:
                break
    assert found == [0, 1, 2, 3]


def test_partitions_that_are_added_are_followed_from_their_beginning(client, event_type, monkeypatch):
    monkeypatch.setattr(selecting, "NEW_PARTITIONS_S", 0)
    name = event_type()
    pieces = follow(Reader(client, name), {"0": _place(-1)})
    assert next(pieces).events == []
    client.partitions.set_count(name, 2)
    _publish(client, name, range(2), key="a")
    _publish(client, name, range(2), key="b")
    with contextlib.closing(pieces):
        found = list(islice((piece.partition for piece in pieces for _ in piece.events), 4))
    assert sorted(found) == ["0", "0", "1", "1"]


def test_a_refusal_is_not_tried_again(client):
    with pytest.raises(NotFound):
        list(follow(Reader(client, "events.absent"), {"0": _place(-1)}))


def test_the_last_events_are_found_across_partitions_and_deletions(client, compacted, event_type):
    reader = Reader(client, compacted)
    found = last_events(reader, reader.locator.bounds(), 1, lambda _: True)
    assert [each.first.position for each in found] == [4]
    found = last_events(reader, reader.locator.bounds(), 9, lambda _: True)
    assert [each.first.position for each in found] == [1, 4]
    name = event_type(2)
    for number in range(6):
        _publish(client, name, [number], key="ab"[number % 2])
    reader = Reader(client, name)
    found = last_events(reader, reader.locator.bounds(), 3, lambda event: json.loads(bytes(event))["number"] != 4)
    assert [json.loads(bytes(piece.events[0]))["number"] for piece in found] == [2, 3, 5]


@pytest.mark.parametrize("again", [5, 50], ids=["fewer events", "more"])
def test_following_ends_where_the_event_type_is_created_again(client, event_type, proxy, again):
    """Its offsets are those of other events then: what stands before them would be skipped."""
    name = event_type()
    _publish(client, name, range(20))
    with Client(f"http://{proxy.address}") as proxied:
        pieces = follow(Reader(proxied, name), {"0": _place(-1)})
        found = [bytes(each.event) for each in entries(islice(pieces, 1))]
        assert found
        body = client.event_types.get(name)
        client.event_types.delete(name)
        client.event_types.create(body)
        _publish(client, name, range(again))
        proxy.break_off()
        with pytest.raises(RangeError, match="created again"):
            list(islice(pieces, 30))
