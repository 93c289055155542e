"""The requests of a stream for events, and the answers that it accepts."""

from array import array

import pytest

from rioni.domain.ports.event_store import Chunk
from rioni.domain.streaming.messages import (
    Coordinated,
    End,
    Fetch,
    Fetched,
    NewEvents,
    PartitionOwnership,
    Reason,
    Run,
    Send,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.session import EVENT_BYTES_GUESS, FETCH_BYTES_MAX, StreamMachine
from tests.domain.streaming.driver import A, B, low_level, place


NEWS = NewEvents({A: place(99), B: place(99)})


def started(keys, **changes):
    return StreamMachine(StreamParameters(**{"stream_timeout_s": 3600} | changes), 0.0, dict.fromkeys(keys, place(-1)))


def subscribed(**changes):
    machine = StreamMachine(StreamParameters(**{"stream_timeout_s": 3600} | changes), 0.0, None)
    machine.step(owned(-1), 0.0)
    return machine


def owned(committed):
    return Coordinated({A: PartitionOwnership(place(committed), requested_by_other=False)})


@pytest.mark.parametrize(
    ("machine", "bytes_max"),
    [
        (started([A], batch_limit=5_000, memory_bytes_max=50_000_000), FETCH_BYTES_MAX),
        (started([A, B], batch_limit=5_000, memory_bytes_max=100_001), 50_000),
        (started([A, B], memory_bytes_max=1), 1),
        (subscribed(max_uncommitted_events=7), 7 * EVENT_BYTES_GUESS),
    ],
    ids=["limit of one read", "shares of the memory", "at least one byte", "window of uncommitted events"],
)
def test_reads_are_limited_by_the_memory_and_by_what_may_be_sent(machine, bytes_max):
    fetches = machine.step(NEWS, 0.0)
    assert {type(each) for each in fetches} == {Fetch}
    assert {each.bytes_max for each in fetches} == {bytes_max}


def test_nothing_is_read_while_nothing_may_be_sent():
    machine = subscribed(max_uncommitted_events=1)
    (fetch,) = machine.step(NEWS, 0.0)
    outputs = machine.step(answer(fetch, 0, b"1"), 0.0)
    assert [type(each) for each in outputs] == [Send]
    assert machine.step(NEWS, 0.0) == []


def answer(fetch, first, *events):
    lengths = [len(event) + 1 for event in events]
    ends = array("I", [sum(lengths[: index + 1]) - 1 for index in range(len(events))])
    return Fetched([Run(fetch, 1, [Chunk(first, 0, b",".join(events), ends, None)])])


@pytest.mark.parametrize("before", [owned(5), Coordinated({}), End(Reason.BLOCKED)], ids=["commit", "loss", "end"])
def test_answers_to_earlier_questions_are_not_sent(before):
    machine = subscribed()
    (fetch,) = machine.step(NEWS, 0.0)
    machine.step(before, 0.0)
    outputs = machine.step(answer(fetch, 0, b"1"), 0.0)
    assert not [each for each in outputs if isinstance(each, Send) and each.slices]


def test_hidden_and_expired_events_add_up():
    stream = low_level()
    stream.publish_hidden(A, "x.t")
    stream.publish_hidden(A, "t")
    assert stream.machine.filtered == 3
    stream.lose(A, 4, 1)
    stream.lose(A, 2, 1)
    assert stream.machine.expired_unread == 6
