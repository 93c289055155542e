import dataclasses
import json
import socket
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from rioni.domain.authorization import Attribute, Subject
from rioni.domain.coordination_ports import EventTypePartition, Topology
from rioni.domain.cursor import Place, format_offset
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.headers import Headers
from rioni.domain.streaming.messages import End, Reason
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.visibility import Visibility
from rioni.domain.timeline import Timelines
from rioni.http.streaming.connection import client_gone
from rioni.http.streaming.low_level_stream import LowLevelStream
from rioni.http.streaming.subscription_stream import SubscriptionStream
from rioni.http.streaming.surroundings import Client, StreamPorts
from rioni.storage.embedded.coordination import EmbeddedCoordinator
from tests.support.builders import timeline, timelines_of
from tests.support.clock import ManualClock
from tests.support.memory import MemoryEventStore, MemorySignals, OneStore, chunk


A, B = EventTypePartition("a", "0"), EventTypePartition("a", "1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def signals(clock: ManualClock) -> MemorySignals:
    return MemorySignals(clock)


@pytest.fixture
def timelines() -> list[Timelines]:
    """What the process knows: replace the one item to let it learn something."""
    return [timelines_of(timeline(1, "topic", partitions=2))]


@pytest.fixture
def ports(clock: ManualClock, signals: MemorySignals, timelines: list[Timelines], tmp_path) -> Iterator[StreamPorts]:
    store = MemoryEventStore(clock, signals)
    store.create_topic("topic", 2)
    coordinator = EmbeddedCoordinator(tmp_path / "coordination.db", clock=clock, signals=signals)
    yield StreamPorts(
        clock=clock,
        stores=OneStore(store),
        timelines=lambda _name: timelines[0],
        signals=signals,
        coordinator=coordinator,
    )
    coordinator.close()


@pytest.fixture
def subscription(ports: StreamPorts) -> str:
    subscription = str(uuid4())
    ports.coordinator.initialise(subscription, dict.fromkeys((A, B), format_offset(1, -1)))
    return subscription


def start(ports: StreamPorts, subscription: str, client: Client | None = None, **parameters) -> SubscriptionStream:
    stream_id = str(uuid4())
    ports.coordinator.join(subscription, stream_id)
    defaults = {"stream_timeout_s": 100, "max_uncommitted_events": 10, "commit_timeout_s": 20}
    stream = SubscriptionStream(
        subscription,
        stream_id,
        StreamParameters(**(defaults | parameters)),
        (A, B),
        ports,
        client or Client(gone=lambda: False),
    )
    assert next(stream) == b""
    return stream


def lines(data: bytes) -> list[dict]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def publish(ports: StreamPorts, partition: int, *events: int) -> None:
    ports.stores.of("default").append("topic", {partition: [b"%d" % event for event in events]})


def sessions(ports: StreamPorts, subscription: str) -> set[str]:
    return set(ports.coordinator.topology(subscription).sessions)


def commit(ports: StreamPorts, stream: SubscriptionStream, subscription: str, key, position: int) -> None:
    ports.coordinator.commit(subscription, stream._stream_id, [(key, format_offset(1, position))])


def test_events_are_sent_when_they_arrive(ports, signals, subscription):
    stream = start(ports, subscription, batch_limit=2)
    signals.then.append(lambda: publish(ports, 1, 10, 11, 12, 13))
    first, second = lines(next(stream))
    assert first["events"] == [10, 11]
    assert first["info"] == {"debug": "Stream started"}
    assert first["cursor"] | {"cursor_token": ""} == {
        "partition": "1",
        "offset": format_offset(1, 1),
        "event_type": "a",
        "cursor_token": "",
    }
    assert second["events"] == [12, 13]
    stream.close()


def test_commits_open_the_window(ports, signals, subscription):
    publish(ports, 0, *range(5))
    stream = start(ports, subscription, batch_limit=3, max_uncommitted_events=3)
    assert lines(next(stream))[0]["events"] == [0, 1, 2]
    signals.then.append(lambda: commit(ports, stream, subscription, A, 1))
    assert lines(next(stream))[0]["events"] == [3, 4]
    stream.close()


def test_committing_the_same_again_gives_more_time(ports, signals, clock, subscription):
    publish(ports, 0, *range(2))
    stream = start(ports, subscription, commit_timeout_s=20, batch_flush_timeout_s=15, max_uncommitted_events=1)
    assert lines(next(stream))[0]["events"] == [0]
    for _ in range(3):
        assert "info" not in lines(next(stream))[0]
        commit(ports, stream, subscription, A, -1)
    commit(ports, stream, subscription, A, 0)
    assert lines(next(stream))[0]["events"] == [1]
    before_s = clock.monotonic()
    infos = [line["info"] for data in stream for line in lines(data) if "info" in line]
    assert infos == [{"debug": "Commit timeout reached"}]
    assert clock.monotonic() - before_s == 20


def test_quiet_partitions_are_kept_alive(ports, clock, subscription):
    stream = start(ports, subscription, batch_flush_timeout_s=7)
    before_s = clock.monotonic()
    assert [(line["cursor"]["partition"], "events" in line) for line in lines(next(stream))] == [
        ("0", False),
        ("1", False),
    ]
    assert clock.monotonic() - before_s == 7
    stream.close()


def test_two_streams_share_and_hand_over(ports, signals, subscription):
    publish(ports, 0, 1)
    publish(ports, 1, 2)
    first = start(ports, subscription)
    assert len(lines(next(first))) in {1, 2}
    second = start(ports, subscription)
    moving = next(
        key
        for key, assignment in ports.coordinator.topology(subscription).partitions.items()
        if assignment.next_session
    )
    signals.then.append(lambda: commit(ports, first, subscription, moving, 0))
    signals.then.append(lambda: publish(ports, int(moving.partition), 7))
    kept = next(key for key in (A, B) if key != moving)
    signals.then.append(lambda: commit(ports, first, subscription, kept, 0))
    signals.then.append(lambda: publish(ports, int(kept.partition), 8))
    sent = lines(next(first))
    assert [(line["cursor"]["partition"], line.get("events")) for line in sent if "events" in line] == [
        (kept.partition, [8])
    ]
    assert lines(next(second))[0]["events"] == [7]
    first.close()
    second.close()


def test_an_ended_stream_leaves(ports, subscription):
    over: list[str] = []
    stream = start(
        ports,
        subscription,
        Client(gone=lambda: False, on_close=lambda: over.append("over")),
        stream_timeout_s=5,
    )
    (started, final) = lines(b"".join(stream))
    assert started["info"] == {"debug": "Stream started"}
    assert final["info"] == {"debug": "Stream timeout reached"}
    assert sessions(ports, subscription) == set()
    assert over == ["over"]
    stream.close()
    assert over == ["over"]


def test_the_slot_of_a_client_that_has_gone_is_free_within_a_second(ports, clock, subscription):
    stream = start(ports, subscription, Client(gone=lambda: clock.monotonic() > 3))
    assert list(stream) == []
    assert clock.monotonic() <= 4.1
    assert sessions(ports, subscription) == set()


def test_who_has_gone_may_still_commit_what_was_sent(ports, signals, clock, subscription):
    publish(ports, 0, 1, 2)
    stream = start(ports, subscription)
    next(stream)
    signals.then.append(lambda: commit(ports, stream, subscription, A, 0))
    stream.close()  # as the server does after a failed write
    assert ports.coordinator.cursors(subscription)[A] == format_offset(1, 0)
    assert sessions(ports, subscription) == set()
    assert clock.monotonic() == pytest.approx(20, abs=0.1)


def test_a_reset_ends_the_stream(ports, subscription):
    stream = start(ports, subscription)

    ports.coordinator._transact(ports.coordinator._begin_reset, subscription)
    ports.coordinator._changed(subscription)
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Resetting subscription cursors"}
    assert sessions(ports, subscription) == set()


def test_a_forgotten_subscription_ends_the_stream(ports, signals, subscription):
    stream = start(ports, subscription)
    signals.then.append(lambda: publish(ports, 0, 1))
    next(stream)
    signals.then.append(lambda: ports.coordinator.forget(subscription))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Subscription deleted"}


class Forgetful:
    """A coordinator that forgets everything between two questions of a stream."""

    def __init__(self, coordinator: EmbeddedCoordinator) -> None:
        self._coordinator = coordinator
        self.forgets = False

    def __getattr__(self, name):
        return getattr(self._coordinator, name)

    def cursors(self, subscription_id):
        if self.forgets:
            self._coordinator.forget(subscription_id)
        return self._coordinator.cursors(subscription_id)


def test_a_subscription_may_be_deleted_between_two_questions(ports, signals, subscription):
    forgetful = Forgetful(ports.coordinator)
    stream = start(dataclasses.replace(ports, coordinator=forgetful), subscription)
    signals.then.append(lambda: setattr(forgetful, "forgets", True))
    signals.then.append(lambda: signals.notify(f"subscription:{subscription}"))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Subscription deleted"}


def test_a_deleted_topic_ends_the_stream(ports, signals, subscription):
    stream = start(ports, subscription)

    def delete() -> None:
        ports.stores.of("default").delete_topic("topic")
        signals.notify("topic:topic")

    signals.then += [lambda: publish(ports, 0, 1), delete]
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Event type deleted"}
    assert sessions(ports, subscription) == set()


@pytest.mark.parametrize("reason", [Reason.SHUTDOWN, Reason.BLOCKED, Reason.UNAUTHORIZED])
def test_an_end_by_the_broker_is_noticed_at_the_next_wake_up(ports, signals, subscription, reason):
    end: list[End] = []
    stream = start(ports, subscription, Client(gone=lambda: False, ended=lambda: end[0] if end else None, keys=["log"]))
    signals.then.append(lambda: (end.append(End(reason, "the detail")), signals.notify("log")))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "the detail"}


def test_a_failing_store_ends_the_stream_with_the_reason(ports, signals, subscription, monkeypatch, caplog):
    stream = start(ports, subscription)

    def fail(*_: object) -> None:
        raise Unavailable("The disk does not answer.")

    monkeypatch.setattr(ports.stores.of("default"), "read", fail)
    signals.then.append(lambda: publish(ports, 0, 1))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "The disk does not answer."}
    assert sessions(ports, subscription) == set()
    assert "A stream failed" in caplog.text


def test_a_defect_ends_the_stream_and_tells_nothing_of_its_inside(ports, signals, subscription, monkeypatch, caplog):
    stream = start(ports, subscription)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(ports.stores.of("default"), "read", fail)
    signals.then.append(lambda: publish(ports, 0, 1))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Internal error"}
    assert sessions(ports, subscription) == set()
    assert "secret" in caplog.text


def test_a_lost_notification_delays_only(ports, clock, signals, subscription):
    stream = start(ports, subscription)
    signals.then.append(lambda: ports.stores.of("default")._partition("topic", 0).append(chunk(0, [b"1"])))
    assert lines(next(stream))[0]["events"] == [1]
    assert clock.monotonic() < 10
    stream.close()


def test_a_low_level_stream(ports, signals):
    publish(ports, 0, 1, 2, 3)
    publish(ports, 1, 4)
    over: list[str] = []
    stream = LowLevelStream(
        StreamParameters(batch_limit=2, stream_limit=3, stream_timeout_s=100),
        {A: Place(1, 0)},
        ports,
        Client(gone=lambda: False, on_close=lambda: over.append("over")),
    )
    signals.then.append(lambda: publish(ports, 0, 5))
    assert b"".join(stream) == (
        b'{"cursor":{"partition":"0","offset":"001-0001-000000000000000002"},"events":[2,3]}\n'
        b'{"cursor":{"partition":"0","offset":"001-0001-000000000000000003"},"events":[5]}\n'
    )
    assert over == ["over"]
    assert signals.watches == set()


def test_a_busy_stream_notices_that_its_client_has_gone(ports, clock):
    gone: list[bool] = []
    stream = LowLevelStream(
        StreamParameters(stream_timeout_s=100, batch_limit=1000),
        {A: Place(1, -1)},
        ports,
        Client(gone=lambda: bool(gone)),
    )
    next(stream)
    for _ in range(3):
        publish(ports, 0, *range(1000))
        assert next(stream)
        clock.advance(100)
    gone.append(True)
    publish(ports, 0, *range(1000))
    assert len(list(stream)) <= 1


def test_a_client_is_let_go_of_even_where_its_session_can_not_be_ended(ports, subscription):
    over = []
    stream = start(ports, subscription, Client(gone=lambda: False, on_close=lambda: over.append("over")))
    ports.coordinator.close()
    with pytest.raises(RioniError):
        stream.close()
    assert over == ["over"]


def test_a_closed_connection_is_noticed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        for end in (socket.socket.close, lambda client: client.shutdown(socket.SHUT_WR)):
            client = socket.create_connection(server.getsockname())
            connection, _ = server.accept()
            gone = client_gone(connection)
            client.sendall(b"something unread")
            assert not gone()
            end(client)
            connection.recv(100)
            assert connection.recv(1) == b""  # now the end has arrived
            assert gone()
            client.close()
            connection.close()
            assert gone()


# --- timelines ---


def switched(*latest: int) -> Timelines:
    """Timelines after a switch from `topic` to `next`."""
    return timelines_of(timeline(1, "topic", partitions=2, latest_position=latest), timeline(2, "next", partitions=2))


def test_a_stream_goes_on_in_the_next_timeline_without_being_woken_for_its_events(ports, signals, timelines):
    publish(ports, 0, 0, 1)
    stream = LowLevelStream(
        StreamParameters(batch_limit=1, stream_timeout_s=100, batch_flush_timeout_s=50),
        {A: Place(1, -1), B: Place(1, -1)},
        ports,
        Client(gone=lambda: False),
    )
    next(stream)
    assert [line["cursor"]["offset"] for line in lines(next(stream))] == [format_offset(1, 0), format_offset(1, 1)]

    def switch() -> None:
        # The stream does not watch the new topic yet: only the look at the timelines tells of its events.
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


def test_a_stream_ends_when_its_subscription_gets_a_partition_that_it_does_not_know(ports, signals, subscription):
    stream = start(ports, subscription)
    new = EventTypePartition("a", "2")
    signals.then.append(lambda: ports.coordinator.extend(subscription, {new: format_offset(1, -1)}))
    *_, last = lines(b"".join(stream))
    assert last["info"] == {"debug": "Resetting subscription cursors"}
    assert sessions(ports, subscription) == set()


def publish_with(ports: StreamPorts, partition: int, headers: Headers, *events: int) -> None:
    batch = {partition: [b"%d" % event for event in events]}
    ports.stores.of("default").append("topic", batch, headers={partition: [headers] * len(events)})


def test_what_is_not_delivered_is_committed_in_the_name_of_the_stream(ports, signals, subscription):
    publish_with(ports, 0, Headers(subscription_id="another"), 0, 1)
    publish(ports, 0, 2)
    stream = start(ports, subscription)
    (line,) = lines(next(stream))
    assert line["events"] == [2]
    assert ports.coordinator.cursors(subscription) == {A: format_offset(1, 1), B: format_offset(1, -1)}
    stream.close()


def test_nothing_is_committed_by_a_stream_that_has_lost_its_session(ports, signals, subscription):
    stream = start(ports, subscription)
    stream._look()
    publish_with(ports, 0, Headers(subscription_id="another"), 0)
    stream._step(stream._arrived([A]))
    ports.coordinator.leave(subscription, stream._stream_id)
    assert lines(next(stream))[-1]["info"]["debug"] == "Session ended"
    assert ports.coordinator.cursors(subscription)[A] == format_offset(1, -1)
    stream.close()


def test_a_process_that_stood_still_for_too_long_sends_nothing_more(ports, signals, subscription):
    stream = start(ports, subscription, batch_limit=1)
    publish(ports, 0, 1)
    assert lines(next(stream))[0]["events"] == [1]
    publish(ports, 0, 2, 3)
    stream._look()
    # As one that others have taken for dead, although it knows nothing of it yet.
    ports.coordinator.close()
    (last,) = lines(next(stream))
    assert "events" not in last
    assert last["info"]["debug"] == "Session ended"


class Dispossessing:
    """A coordinator that takes the session of a busy stream between a look and the next one."""

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

    def holds(self, _stream_id):
        return self.looks < 2


def test_a_stream_that_has_events_to_send_ends_with_its_session(ports, signals, clock, subscription):
    def between() -> None:
        publish(ports, 0, 1)
        clock.advance(100)

    dispossessing = Dispossessing(ports.coordinator, between)
    stream = start(dataclasses.replace(ports, coordinator=dispossessing), subscription)
    (last,) = lines(b"".join(stream))
    assert dispossessing.looks == 2
    assert "events" not in last
    assert last["info"]["debug"].endswith("Session ended")
    assert sessions(ports, subscription) == set()


def test_what_somebody_may_see_can_change_while_the_stream_lasts(ports, signals, subscription):
    blue = Subject(name="blue")
    visibility = [Visibility(reader=blue)]
    stream = start(ports, subscription, Client(gone=lambda: False, visibility=lambda: visibility[0]))
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
