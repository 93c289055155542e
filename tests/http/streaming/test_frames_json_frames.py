import json

import pytest

from rioni.domain.streaming.batching import Slice
from rioni.domain.streaming.messages import Send
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.http.streaming.frames import Frames, random_token
from tests.support.memory import chunk


KEY = EventTypePartition("a", "5")
CHUNK = chunk(540, [b'{"x":1}', b'{"y": [2, 3]}', b'{"z":"\xc3\xa9"}', b"{}"])


def send(*slices: Slice, info: str = "") -> Send:
    return Send(KEY, slices[-1].last if slices else TimelinePosition(1, -1), slices, info)


def test_a_batch_of_a_subscription():
    assert b"".join(Frames(lambda: "b75c").write(send(Slice(1, CHUNK, 541, 544), info="Stream started"))) == (
        b'{"cursor":{"partition":"5","offset":"001-0001-000000000000000543","event_type":"a","cursor_token":"b75c"},'
        b'"events":[{"y": [2, 3]},{"z":"\xc3\xa9"},{}],"info":{"debug":"Stream started"}}\n'
    )


def test_a_keep_alive_of_a_subscription():
    assert b"".join(Frames(lambda: "b75c").write(send())) == (
        b'{"cursor":{"partition":"5","offset":"001-0001--1","event_type":"a","cursor_token":"b75c"}}\n'
    )


def test_a_batch_of_a_low_level_stream():
    assert b"".join(Frames().write(send(Slice(1, CHUNK, 540, 541)))) == (
        b'{"cursor":{"partition":"5","offset":"001-0001-000000000000000540"},"events":[{"x":1}]}\n'
    )


def test_a_keep_alive_of_a_low_level_stream():
    assert b"".join(Frames().write(send())) == b'{"cursor":{"partition":"5","offset":"001-0001--1"}}\n'


def test_a_batch_may_consist_of_several_chunks():
    line = b"".join(Frames().write(send(Slice(1, CHUNK, 542, 544), Slice(1, chunk(544, [b"4", b"5"]), 544, 546))))
    assert json.loads(line)["events"] == [{"z": "é"}, {}, 4, 5]
    assert json.loads(line)["cursor"]["offset"] == "001-0001-000000000000000545"


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "é"])
def test_names_are_escaped(name: str):
    line = b"".join(Frames(lambda: "").write(Send(EventTypePartition(name, name), TimelinePosition(1, 0), (), name)))
    assert json.loads(line) == {
        "cursor": {
            "partition": name,
            "offset": "001-0001-000000000000000000",
            "event_type": name,
            "cursor_token": "",
        },
        "info": {"debug": name},
    }


def test_every_batch_has_a_unique_token():
    """Reference subscriptions#cursor-tokens."""
    frames = Frames(random_token)
    tokens = {json.loads(b"".join(frames.write(send())))["cursor"]["cursor_token"] for _ in range(100)}
    assert len(tokens) == 100
