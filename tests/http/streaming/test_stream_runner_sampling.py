"""Streams that look at a limited number of events in a second.

Source: reference low-level-streams#left-out-events.
"""

import json

from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.messages import Send
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.timelines.position import TimelinePosition
from rioni.http.streaming.server_sent_events import ServerSentEvents
from rioni.http.streaming.stream_context import StreamClient
from rioni.http.streaming.streams import LowLevelStream
from tests.http.streaming.conftest import A, B, lines, publish
from tests.support.builders import timeline, timelines_of
from tests.support.stream_client import client_with


BEGIN = TimelinePosition(1, -1)


def sampling(ports, client=None, limit=10):
    parameters = StreamParameters(
        events_per_second_limit=limit, batch_limit=1_000, batch_flush_timeout_s=1, stream_timeout_s=100
    )
    stream = LowLevelStream(parameters, {A: BEGIN, B: BEGIN}, ports, client or StreamClient())
    assert next(stream) == b""
    return stream


def with_events(stream):
    """The next batches with events, by partition."""
    return {batch["cursor"]["partition"]: batch for batch in lines(next(stream)) if "events" in batch}


def test_the_newest_events_are_sent_and_the_others_counted(ports):
    publish(ports, 0, *range(100))
    publish(ports, 1, 7)
    sent = with_events(sampling(ports))
    assert sent["1"]["events"] == [7]
    assert "info" not in sent["1"]
    assert sent["0"]["events"] == [*range(91, 100)]
    assert sent["0"]["info"] == {"left_out": 91}


def test_what_is_sent_and_left_out_is_everything(ports):
    stream, published, counted = sampling(ports), 0, 0
    for count in (50, 3, 200, 0, 70):
        publish(ports, 0, *range(published, published + count))
        published += count
        for batch in lines(next(stream)):
            events = batch.get("events", [])
            assert events == [*range(published)][-len(events) :] * bool(events)
            counted += len(events) + batch.get("info", {}).get("left_out", 0)
        assert counted == published


def test_a_filter_looks_at_no_event_that_is_left_out(ports):
    looked_at = []

    class Wanted:
        def take_failures(self):
            return 0

        def matches(self, event):
            looked_at.append(int(event))
            return int(event) % 2 == 0

    visibility = Visibility(wanted=Wanted())
    publish(ports, 0, *range(100))
    stream = sampling(ports, client_with(visibility=lambda: visibility))
    last = with_events(stream)["0"]
    assert looked_at == [*range(90, 100)]
    assert last["events"] == [90, 92, 94, 96, 98]
    assert last["info"] == {"left_out": 90}


def test_events_of_earlier_timelines_are_counted(ports, timelines):
    publish(ports, 0, *range(100))
    ports.stores.of("default").create_topic("next", 2)
    ports.stores.of("default").append("next", {0: [b"100", b"101"]})
    timelines[0] = timelines_of(
        timeline(1, "topic", partitions=2, latest_position=(99, -1)), timeline(2, "next", partitions=2)
    )
    last = with_events(sampling(ports))["0"]
    assert last["cursor"] == {"partition": "0", "offset": TimelinePosition(2, 1).offset}
    assert last["events"] == [100, 101]
    assert last["info"] == {"left_out": 100}


def test_an_event_without_events_moves_the_cursor_behind_what_it_counts():
    frames = ServerSentEvents(places={A: BEGIN, B: BEGIN})
    text = b"".join(frames.write(Send(A, TimelinePosition(1, 6), (), "", 7))).decode()
    (cursors,) = [json.loads(line.removeprefix("id: ")) for line in text.splitlines() if line.startswith("id: ")]
    assert cursors == [
        {"partition": "0", "offset": TimelinePosition(1, 6).offset},
        {"partition": "1", "offset": BEGIN.offset},
    ]
    assert '"info":{"left_out":7}' in text
