"""Changes during a stream: timelines, sessions, and visibility."""

import dataclasses
from collections.abc import Callable
from uuid import uuid4

from rioni.domain.access.authorization import Attribute, Subject
from rioni.domain.ports.coordinator import Topology
from rioni.domain.publishing.headers import Headers
from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition, format_offset
from rioni.domain.timelines.timeline import Timelines
from rioni.http.streaming.stream_context import StreamClient, StreamPorts
from rioni.http.streaming.streams import LowLevelStream
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from tests.http.streaming.conftest import A, B, commit, lines, publish, sessions, start
from tests.support.builders import timeline, timelines_of
from tests.support.stream_client import client_with


def switched(*latest: int) -> Timelines:
    """Timelines after a switch from `topic` to `next`."""
    return timelines_of(timeline(1, "topic", partitions=2, latest_position=latest), timeline(2, "next", partitions=2))


def test_a_stream_continues_in_the_next_timeline_without_a_notification_of_its_events(ports, signals, timelines):
    """Reference low-level-streams#timeline-switches."""
    publish(ports, 0, 0, 1)
    stream = LowLevelStream(
        StreamParameters(batch_limit=1, stream_timeout_s=100, batch_flush_timeout_s=50),
        {A: TimelinePosition(1, -1), B: TimelinePosition(1, -1)},
        ports,
        StreamClient(),
    )
    next(stream)
    assert [line["cursor"]["offset"] for line in lines(next(stream))] == [format_offset(1, 0), format_offset(1, 1)]

    def switch() -> None:
        # The stream does not watch the new topic yet: it learns of its events only by checking the timelines.
        ports.stores.of("default").create_topic("next", 2)
        ports.stores.of("default").append("next", {0: [b"2"], 1: [b"10"]})
        timelines[:] = [switched(1, -1)]

    signals.then.append(switch)
    sent = {line["cursor"]["partition"]: line for line in lines(next(stream))}
    assert {partition: line["events"] for partition, line in sent.items()} == {"0": [2], "1": [10]}
    assert sent["0"]["cursor"]["offset"] == format_offset(2, 0)
    signals.then.append(lambda: ports.stores.of("default").append("next", {1: [b"11"]}))
    assert lines(next(stream))[0]["cursor"] == {"partition": "1", "offset": format_offset(2, 1)}
    stream.close()


def test_events_of_a_timeline_that_was_cleaned_up_are_counted_as_skipped(ports, timelines):
    """Reference streams#lost-events."""
    ports.stores.of("default").create_topic("next", 2)
    ports.stores.of("default").append("next", {0: [b"5"]})
    timelines[:] = [
        timelines_of(
            timeline(1, "gone", partitions=2, latest_position=(4, -1), cleaned_up_at="t"),
            timeline(2, "next", partitions=2),
        )
    ]
    subscription = str(uuid4())
    ports.coordinator.initialise(subscription, {A: format_offset(1, 1), B: format_offset(1, -1)})
    stream = start(ports, subscription)
    (line,) = lines(next(stream))
    assert line["events"] == [5]
    assert line["info"] == {"debug": "Stream started; skipped events due to retention time passed, count: 3"}
    stream.close()


def test_a_stream_ends_when_its_subscription_gets_an_unknown_partition(ports, signals, subscription):
    stream = start(ports, subscription)
    new = EventTypePartition("a", "2")
    signals.then.append(lambda: ports.coordinator.extend(subscription, {new: format_offset(1, -1)}))
    *_, last = lines(b"".join(stream))
    assert last["info"] == {"debug": "Resetting subscription cursors"}
    assert sessions(ports, subscription) == set()


def publish_with(ports: StreamPorts, partition: int, headers: Headers, *events: int) -> None:
    batch = {partition: [b"%d" % event for event in events]}
    ports.stores.of("default").append("topic", batch, headers={partition: [headers] * len(events)})


def test_hidden_events_are_committed_by_the_session_of_the_stream(ports, signals, subscription):
    publish_with(ports, 0, Headers(subscription_id="another"), 0, 1)
    publish(ports, 0, 2)
    stream = start(ports, subscription)
    (line,) = lines(next(stream))
    assert line["events"] == [2]
    assert ports.coordinator.cursors(subscription) == {A: format_offset(1, 1), B: format_offset(1, -1)}
    stream.close()


def test_nothing_is_committed_by_a_stream_without_a_session(ports, signals, subscription):
    stream = start(ports, subscription)
    stream._check_events()
    publish_with(ports, 0, Headers(subscription_id="another"), 0)
    stream._step(stream._new_events([A]))
    ports.coordinator.leave(subscription, stream._stream_id)
    assert lines(next(stream))[-1]["info"]["debug"] == "Session ended"
    assert ports.coordinator.cursors(subscription)[A] == format_offset(1, -1)
    stream.close()


def test_a_process_that_was_suspended_for_too_long_sends_nothing_more(ports, signals, subscription):
    """Reference streams#dead-streams."""
    stream = start(ports, subscription, batch_limit=1)
    publish(ports, 0, 1)
    assert lines(next(stream))[0]["events"] == [1]
    publish(ports, 0, 2, 3)
    stream._check_events()
    # Like a process that others consider dead, although it does not know that yet.
    ports.coordinator.close()
    (last,) = lines(next(stream))
    assert "events" not in last
    assert last["info"]["debug"] == "Session ended"


class EndsSession:
    """A coordinator that ends the session of a busy stream between two checks."""

    def __init__(self, coordinator: EmbeddedCoordinator, between: Callable[[], object]) -> None:
        self._coordinator, self._between = coordinator, between
        self.looks = 0

    def __getattr__(self, name):
        return getattr(self._coordinator, name)

    def topology(self, subscription_id):
        topology = self._coordinator.topology(subscription_id)
        self.looks += 1
        if self.looks == 1:
            self._between()
            return topology
        return Topology(topology.epoch + 1, topology.partitions, {})

    def owns(self, _stream_id):
        return self.looks < 2


def test_a_stream_with_pending_events_ends_with_its_session(ports, signals, clock, subscription):
    def between() -> None:
        publish(ports, 0, 1)
        clock.advance(100)

    dispossessing = EndsSession(ports.coordinator, between)
    stream = start(dataclasses.replace(ports, coordinator=dispossessing), subscription)
    (last,) = lines(b"".join(stream))
    assert dispossessing.looks == 2
    assert "events" not in last
    assert last["info"]["debug"].endswith("Session ended")
    assert sessions(ports, subscription) == set()


def test_visibility_can_change_during_a_stream(ports, signals, subscription):
    blue = Subject(name="blue")
    visibility = [Visibility(reader=blue)]
    stream = start(ports, subscription, client_with(visibility=lambda: visibility[0]))
    owned = Headers(owner=Attribute("team", "red"))
    publish_with(ports, 0, owned, 0)
    publish(ports, 0, 1)
    assert [line["events"] for line in lines(next(stream))] == [[1]]
    visibility[0] = Visibility()
    signals.then.append(lambda: publish_with(ports, 0, owned, 2))
    assert [line["events"] for line in lines(next(stream))] == [[2]]
    visibility[0] = Visibility(reader=blue)
    signals.then += [lambda: publish_with(ports, 0, owned, 3), lambda: publish(ports, 0, 4)]
    assert [line["events"] for line in lines(next(stream))] == [[4]]
    stream.close()


# --- cursors beyond the last event ---


def test_a_stream_waiting_beyond_the_last_event_ends_and_names_the_cursor(ports, subscription):
    """This is the state after a restore of older events: two more were published since, and would never be sent.

    Source: reference streams#end-reasons.
    """
    publish(ports, 0, 0, 1)
    first = start(ports, subscription)
    ports.coordinator.commit(subscription, first._stream_id, [(A, format_offset(1, 9))])
    first.close()
    stream = start(ports, subscription)
    said = [line["info"]["debug"] for line in lines(b"".join(stream)) if "info" in line]
    assert said[-1] == (
        f"The committed cursor {format_offset(1, 9)} of event type a, partition 0, is beyond the last event, "
        f"{format_offset(1, 1)}. Reset the cursors of the subscription"
    )
    assert not sessions(ports, subscription)


def test_a_stream_continues_when_its_client_commits_ahead(ports, subscription, signals):
    """Reference subscriptions#commits-beyond-sent-events."""
    publish(ports, 0, 0, 1)
    stream = start(ports, subscription)
    assert [line["events"] for line in lines(next(stream))] == [[0], [1]]
    commit(ports, stream, subscription, A, 3)
    signals.then.append(lambda: publish(ports, 0, 2, 3, 4))
    assert [line["events"] for line in lines(next(stream)) if "events" in line] == [[4]]
    stream.close()


def test_a_cursor_in_a_timeline_not_known_yet_is_not_beyond_the_end(ports, subscription, timelines, signals):
    first = start(ports, subscription)
    ports.coordinator.commit(subscription, first._stream_id, [(A, format_offset(2, 0))])
    first.close()
    ports.stores.of("default").create_topic("next", 2)
    ports.stores.of("default").append("next", {0: [b"0", b"1"]})

    def learn() -> None:
        timelines[:] = [switched(-1, -1)]

    signals.then.append(learn)
    stream = start(ports, subscription)
    assert [line["events"] for line in lines(next(stream)) if "events" in line] == [[1]]
    stream.close()
