import dataclasses
import socket

import pytest
from structlog.testing import capture_logs

from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.streaming.messages import End, Reason
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.timelines.position import TimelinePosition, format_offset
from rioni.http.resources.streams import is_disconnected
from rioni.http.streaming.streams import GIVES_WAY_AFTER_S, LowLevelStream
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from tests.http.streaming.conftest import A, B, commit, lines, publish, sessions, start
from tests.support.memory import chunk
from tests.support.stream_client import client_with


@pytest.fixture
def failure_lines():
    """The lines logged about failures."""
    with capture_logs() as lines:
        yield lines


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


def test_committing_the_same_cursor_again_restarts_the_commit_timeout(ports, signals, clock, subscription):
    """Reference subscriptions#commit-heartbeats."""
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


def test_two_streams_share_partitions_and_hand_them_over(ports, signals, subscription):
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
        client_with(on_close=lambda: over.append("over")),
        stream_timeout_s=5,
    )
    (started, final) = lines(b"".join(stream))
    assert started["info"] == {"debug": "Stream started"}
    assert final["info"] == {"debug": "Stream timeout reached"}
    assert sessions(ports, subscription) == set()
    assert over == ["over"]
    stream.close()
    assert over == ["over"]


def test_the_slot_of_a_disconnected_client_is_free_within_a_second(ports, clock, subscription):
    """Reference streams#disconnected-clients."""
    stream = start(ports, subscription, client_with(is_disconnected=lambda: clock.monotonic() > 3))
    assert list(stream) == []
    assert clock.monotonic() <= 4.1
    assert sessions(ports, subscription) == set()


def test_a_disconnected_client_may_still_commit_sent_events(ports, signals, clock, subscription):
    """Reference streams#disconnected-clients."""
    publish(ports, 0, 1, 2)
    stream = start(ports, subscription)
    next(stream)
    signals.then.append(lambda: commit(ports, stream, subscription, A, 0))
    stream.close()  # as the server does after a failed write
    assert ports.coordinator.cursors(subscription)[A] == format_offset(1, 0)
    assert sessions(ports, subscription) == set()
    assert clock.monotonic() == pytest.approx(20, abs=0.1)


def test_the_session_of_a_disconnected_client_gives_way_to_streams_that_wait_or_are_there(ports, clock, subscription):
    """Reference streams#disconnected-clients."""
    publish(ports, 0, 1)
    ended: list[Reason] = []
    first = start(ports, subscription, client_with(is_disconnected=lambda: clock.monotonic() > 3, on_end=ended.append))
    assert lines(next(first))[0]["events"] == [1]
    second = start(ports, subscription)
    assert list(first) == []
    assert clock.monotonic() < 3 + 1 + GIVES_WAY_AFTER_S + 1
    assert ended == [Reason.CLIENT_GONE]
    assert lines(next(second))[0]["events"] == [1]
    assert len(sessions(ports, subscription)) == 1
    second.close()


def test_a_reset_ends_the_stream(ports, subscription):
    stream = start(ports, subscription)

    ports.coordinator._write(lambda rows: rows.begin_reset(ports.coordinator.worker), subscription)
    ports.coordinator._changed(subscription)
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Resetting subscription cursors"}
    assert sessions(ports, subscription) == set()


def test_a_deleted_subscription_ends_the_stream(ports, signals, subscription):
    stream = start(ports, subscription)
    signals.then.append(lambda: publish(ports, 0, 1))
    next(stream)
    signals.then.append(lambda: ports.coordinator.delete(subscription))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Subscription deleted"}


class LosesSubscriptions:
    """A coordinator that loses all subscriptions between two calls of a stream."""

    def __init__(self, coordinator: EmbeddedCoordinator) -> None:
        self._coordinator = coordinator
        self.forgets = False

    def __getattr__(self, name):
        return getattr(self._coordinator, name)

    def cursors(self, subscription_id):
        if self.forgets:
            self._coordinator.delete(subscription_id)
        return self._coordinator.cursors(subscription_id)


def test_a_subscription_may_be_deleted_between_two_calls(ports, signals, subscription):
    forgetful = LosesSubscriptions(ports.coordinator)
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
    stream = start(ports, subscription, client_with(ended=lambda: end[0] if end else None, keys=["log"]))
    signals.then.append(lambda: (end.append(End(reason, "the detail")), signals.notify("log")))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "the detail"}


def test_a_failing_store_ends_the_stream_with_the_reason(ports, signals, subscription, monkeypatch, failure_lines):
    """Reference streams#end-reasons."""
    stream = start(ports, subscription)

    def fail(*_: object) -> None:
        raise Unavailable("The disk does not answer.")

    monkeypatch.setattr(ports.stores.of("default"), "read", fail)
    signals.then.append(lambda: publish(ports, 0, 1))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "The disk does not answer."}
    assert sessions(ports, subscription) == set()
    assert [(line["event"], bool(line["exc_info"])) for line in failure_lines] == [("A stream failed", False)]
    # The next stream says that it works again, and a third one nothing.
    monkeypatch.undo()
    for _ in range(2):
        again = start(ports, subscription)
        next(again)
        again.close()
    assert [line["event"] for line in failure_lines[1:]] == ["works again"]


def test_a_failing_coordinator_is_said_to_work_again_by_the_next_stream(
    ports, signals, subscription, monkeypatch, failure_lines
):
    stream = start(ports, subscription)

    def fail(*_: object) -> None:
        raise Unavailable("ZooKeeper does not answer.")

    signals.then.append(lambda: (monkeypatch.setattr(ports.coordinator, "topology", fail), publish(ports, 0, 1)))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "ZooKeeper does not answer."}
    monkeypatch.undo()
    again = start(ports, subscription)
    next(again)
    again.close()
    assert [line["event"] for line in failure_lines] == ["A stream failed", "works again"]


def test_an_error_of_one_stream_alone_is_not_said_to_be_over_by_another(
    ports, signals, subscription, monkeypatch, failure_lines
):
    stream = start(ports, subscription)

    def fail(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr(ports.stores.of("default"), "read", fail)
    signals.then.append(lambda: publish(ports, 0, 1))
    list(stream)
    monkeypatch.undo()
    again = start(ports, subscription)
    next(again)
    again.close()
    assert [line["event"] for line in failure_lines] == ["A stream failed"]


def test_a_stream_that_ends_before_it_knows_any_cursor_gives_the_reason(ports, subscription, monkeypatch):
    stream = start(ports, subscription)

    def fail(*_: object) -> None:
        raise Unavailable("ZooKeeper does not answer.")

    monkeypatch.setattr(ports.coordinator, "topology", fail)
    (line,) = lines(b"".join(stream))
    assert line["info"] == {"debug": "ZooKeeper does not answer."}
    assert line["cursor"]["offset"] == "001-0001--1"


def test_an_internal_error_ends_the_stream_without_showing_details(
    ports, signals, subscription, monkeypatch, failure_lines
):
    stream = start(ports, subscription)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(ports.stores.of("default"), "read", fail)
    signals.then.append(lambda: publish(ports, 0, 1))
    assert lines(b"".join(stream))[-1]["info"] == {"debug": "Internal error"}
    assert sessions(ports, subscription) == set()
    assert [repr(line["exc_info"]) for line in failure_lines] == ["ZeroDivisionError('secret')"]


def test_a_lost_notification_only_causes_a_delay(ports, clock, signals, subscription):
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
        {A: TimelinePosition(1, 0)},
        ports,
        client_with(on_close=lambda: over.append("over")),
    )
    signals.then.append(lambda: publish(ports, 0, 5))
    assert b"".join(stream) == (
        b'{"cursor":{"partition":"0","offset":"001-0001-000000000000000002"},"events":[2,3]}\n'
        b'{"cursor":{"partition":"0","offset":"001-0001-000000000000000003"},"events":[5]}\n'
    )
    assert over == ["over"]
    assert signals.watches == set()


def test_a_busy_stream_notices_that_its_client_has_disconnected(ports, clock):
    """Reference low-level-streams#client-disconnects."""
    gone: list[bool] = []
    stream = LowLevelStream(
        StreamParameters(stream_timeout_s=100, batch_limit=1000),
        {A: TimelinePosition(1, -1)},
        ports,
        client_with(is_disconnected=lambda: bool(gone)),
    )
    next(stream)
    for _ in range(3):
        publish(ports, 0, *range(1000))
        assert next(stream)
        clock.advance(100)
    gone.append(True)
    publish(ports, 0, *range(1000))
    assert len(list(stream)) <= 1


def test_a_stream_ends_even_if_its_session_can_not_be_ended(ports, subscription):
    over = []
    stream = start(ports, subscription, client_with(on_close=lambda: over.append("over")))
    ports.coordinator.close()
    with pytest.raises(RioniError):
        stream.close()
    assert over == ["over"]


def test_a_closed_connection_is_noticed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        for end in (socket.socket.close, lambda client: client.shutdown(socket.SHUT_WR)):
            client = socket.create_connection(server.getsockname())
            connection, _ = server.accept()
            client.sendall(b"something unread")
            assert not is_disconnected(connection)
            end(client)
            connection.recv(100)
            assert connection.recv(1) == b""  # now the end of the connection has arrived
            assert is_disconnected(connection)
            client.close()
            connection.close()
            assert is_disconnected(connection)
