"""Ids of server-sent events: bounded, and proven by the client that they were sent to."""

import json

import pytest
from falcon import testing

from rioni.domain.access.authorization import Subject
from rioni.domain.streaming.messages import Send
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.http.streaming.server_sent_events import ID_BYTES_MAX, ServerSentEvents, wants_events
from rioni.http.streaming.stream_tickets import Resumption


def ids(text):
    return [line.removeprefix("id: ") for line in text.decode().splitlines() if line.startswith("id: ")]


def test_an_id_of_many_partitions_keeps_the_newest_cursors():
    frames = ServerSentEvents(lambda: "token", stream_id="stream", proof="proof")
    for number in [*range(200), 3]:
        key = EventTypePartition("order.created", str(number))
        (last,) = ids(b"".join(frames.write(Send(key, TimelinePosition(1, number), (), "x", 1))))
        assert len(last) <= ID_BYTES_MAX
    origin, *cursors = json.loads(last)
    assert origin == {"stream_id": "stream", "proof": "proof"}
    kept = [int(each["partition"]) for each in cursors]
    assert kept == [*range(199 - len(kept) + 2, 200), 3]


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, */*", True),
        ("application/json, text/event-stream", True),
        ("application/x-json-stream;q=0.5, text/event-stream;q=0.9", True),
        ("application/x-json-stream;q=0, text/event-stream", True),
        # The Java client of openapi-generator sends this.
        ("application/x-json-stream, application/avro-binary; framing=length, text/event-stream", False),
        ("text/event-stream, application/x-json-stream", False),
        ("text/event-stream;q=0.5, application/x-json-stream", False),
        ("text/event-stream;q=0, */*", False),
        ("text/event-streams", False),
        ("*/*", False),
    ],
)
def test_server_sent_events_are_for_clients_that_do_not_take_lines_as_gladly(accept, wants):
    """Reference streams#server-sent-events."""
    assert wants_events(testing.create_req(headers={"Accept": accept})) is wants


def test_keep_alives_of_a_low_level_stream_move_its_id_past_hidden_events():
    key = EventTypePartition("order.created", "0")
    frames = ServerSentEvents(places={key: TimelinePosition(1, 4)})
    assert [cursor["offset"] for cursor in json.loads(*ids(frames.begin()))] == [TimelinePosition(1, 4).offset]
    (after,) = ids(b"".join(frames.write(Send(key, TimelinePosition(1, 9), (), "", 0))))
    assert [cursor["offset"] for cursor in json.loads(after)] == [TimelinePosition(1, 9).offset]


@pytest.mark.parametrize(
    "other", [("b", "alice", "users"), ("a", "bob", "users"), ("a", "alice", "services"), ("a", "alice", "")]
)
def test_a_proof_is_of_one_stream_and_one_client(other):
    here, there, elsewhere = (Resumption(lambda secret=secret: secret) for secret in (b"1", b"1", b"2"))
    alice = Subject(name="alice", realm="users")
    proof = here.proof("a", alice)
    assert there.proves(proof, "a", alice)
    assert not elsewhere.proves(proof, "a", alice)
    stream_id, name, realm = other
    assert not here.proves(proof, stream_id, Subject(name=name, realm=realm))
    assert not here.proves("", "a", alice)
    assert not here.proves("ü", "a", alice)
