"""Streams without a server: their ports, and ways to drive them."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.timelines.position import EventTypePartition, format_offset
from rioni.domain.timelines.timeline import Timelines
from rioni.http.streaming.stream_context import StreamClient, StreamPorts
from rioni.http.streaming.streams import SubscriptionStream
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from tests.support.builders import timeline, timelines_of
from tests.support.clock import ManualClock
from tests.support.memory import MemoryEventStore, MemorySignals, SingleStore


A, B = EventTypePartition("a", "0"), EventTypePartition("a", "1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def signals(clock: ManualClock) -> MemorySignals:
    return MemorySignals(clock)


@pytest.fixture
def timelines() -> list[Timelines]:
    """The timelines that the process knows: replace the one item to change them."""
    return [timelines_of(timeline(1, "topic", partitions=2))]


@pytest.fixture
def ports(clock: ManualClock, signals: MemorySignals, timelines: list[Timelines], tmp_path) -> Iterator[StreamPorts]:
    store = MemoryEventStore(clock, signals)
    store.create_topic("topic", 2)
    coordinator = EmbeddedCoordinator(tmp_path / "coordination.db", clock=clock, signals=signals)
    yield StreamPorts(
        clock=clock,
        stores=SingleStore(store),
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


def start(
    ports: StreamPorts, subscription: str, client: StreamClient | None = None, **parameters
) -> SubscriptionStream:
    stream_id = str(uuid4())
    ports.coordinator.join(subscription, stream_id)
    defaults = {"stream_timeout_s": 100, "max_uncommitted_events": 10, "commit_timeout_s": 20}
    stream = SubscriptionStream(
        subscription,
        stream_id,
        StreamParameters(**(defaults | parameters)),
        (A, B),
        ports,
        client or StreamClient(),
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
