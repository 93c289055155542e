"""Switches over Kafka in a process that dies at any point: the next one repairs them, on any node."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.system.storages import CreateStorage
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.errors import Conflict, NotFound, Unavailable
from rioni.domain.ports.host import in_place
from rioni.domain.system.storages import EMBEDDED, StorageEntry
from rioni.domain.timelines.position import BEFORE_FIRST, TimelinePosition
from rioni.projections.queries.timeline_reader import read_after
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_stores import EventStoreRegistry
from rioni.storage.kafka.factory import opener
from rioni.storage.zookeeper.coordination import ZooKeeperCoordinator
from rioni.storage.zookeeper.session import ZooKeeperSession
from rioni.storage.zookeeper.signals import ZooKeeperSignals
from tests.support.broker import Broker, running_broker
from tests.support.builders import event_type_spec
from tests.support.processes import Process, ProcessDied


pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres]

STEPS = range(3, 12)
"""After the start; before and after the creation of the new topic, the record that the old one is about to be closed,
the closing, and the completion."""
ROUTES = [("default", "kafka"), ("kafka", "other-kafka")]


class Node:
    """A process with its own adapters, as on its own machine."""

    def __init__(self, broker: Broker, kafka: str, hosts: str, folder: Path) -> None:
        folder.mkdir()
        names = f"sqlite:///{folder.parent / 'names.db'}"
        kafkas = opener(kafka, database=names, refuses_late=False, clock=broker.clock, signals=broker.signals)
        self._stores = EventStoreRegistry(broker._storage, {EMBEDDED: broker._open, "kafka": kafkas}, in_place)
        session = ZooKeeperSession(hosts, clock=SystemClock(), session_timeout_s=10.0)
        self._signals = ZooKeeperSignals(session, EmbeddedSignals(folder))
        self._coordinator = ZooKeeperCoordinator(
            session, self._signals.cache, clock=SystemClock(), watch=self._signals.watch
        )
        self.process = Process(broker, self._coordinator, self._stores)

    def die(self) -> None:
        self._coordinator.close()

    def close(self) -> None:
        self.die()
        self._signals.close()
        self._stores.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory, lasting_postgres_url, kafka_cluster) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("data") / "data", database=lasting_postgres_url()) as broker:
        for storage_id in ("kafka", "other-kafka"):
            configuration = {"topic_prefix": f"{uuid4()}-"}
            broker.do(
                CreateStorage(
                    storage=StorageEntry(
                        id=storage_id, storage_type="kafka", default=False, configuration=configuration
                    )
                )
            )
        yield broker


@pytest.fixture(scope="module")
def start(broker, kafka_cluster, zookeeper_cluster, tmp_path_factory):
    """Starts a node."""
    hosts, folder = f"{zookeeper_cluster.zookeeper}/{uuid4()}", tmp_path_factory.mktemp("nodes")
    with contextlib.ExitStack() as started:

        def start() -> Node:
            node = Node(broker, kafka_cluster.kafka, hosts, folder / str(uuid4()))
            started.callback(node.close)
            return node

        yield start


@pytest.fixture(scope="module")
def staying(start) -> Process:
    """The process that repairs."""
    return start().process


class Scenario:
    """One event type, with the events published to it."""

    def __init__(self, broker: Broker, staying: Process, storage_id: str) -> None:
        self._broker, self._staying = broker, staying
        self.name = f"test.event-{uuid4()}"
        staying.bus.dispatch(CreateEventType(spec=event_type_spec(name=self.name)), broker.context())
        self.acknowledged: list[bytes] = []
        self.publish()
        if storage_id != "default":
            self.switch(staying, storage_id)
            self.publish()

    @property
    def timelines(self):
        self._staying.registry.refresh()
        return self._staying.registry.timelines(self.name)

    def switch(self, process: Process, storage_id: str) -> None:
        process.timeline_switcher.switch(
            StartSwitch(event_type=self.name, storage_id=storage_id), self._broker.context()
        )

    def publish(self) -> None:
        event = b"%d" % len(self.acknowledged)
        self._staying.timeline.append(self.timelines.active, {0: [event]})
        self.acknowledged.append(event)

    def repair(self) -> None:
        self._staying.registry.refresh()
        self._staying.timeline_switcher.repair(self._broker.context)

    def check(self) -> None:
        place, found = TimelinePosition(1, BEFORE_FIRST), []
        while True:
            order, chunks = read_after(self.timelines, self._staying.stores, 0, place, 100)
            if not chunks:
                break
            found += [event for chunk in chunks for event in chunk.data.split(b",")]
            place = TimelinePosition(order, chunks[-1].next - 1)
        assert found == self.acknowledged

    def there(self, timeline) -> bool:
        with contextlib.suppress(NotFound):
            return bool(self._staying.stores.of(timeline.storage_id).bounds(timeline.topic))
        return False


def die_at(node: Node, step: int) -> None:
    """Let a process die at one of its steps."""
    steps = itertools.count()

    def live() -> None:
        if next(steps) >= step:
            raise ProcessDied

    node.process.step = live


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("before", "after"), ROUTES)
def test_after_a_death_at_any_step_nothing_is_lost_and_another_node_repairs(
    broker, start, staying, before, after, step
):
    scenario = Scenario(broker, staying, before)
    node = start()
    die_at(node, step)
    with contextlib.suppress(ProcessDied):
        scenario.switch(node.process, after)
    begun = scenario.timelines.switch
    if begun is not None:
        # Before the others know that it has died.
        with contextlib.suppress(Unavailable):
            scenario.publish()
        with pytest.raises(Conflict):
            scenario.switch(staying, after)
    node.die()
    if step % 2:
        scenario.repair()
        scenario.publish()
    scenario.switch(staying, after)
    scenario.publish()
    scenario.check()
    assert scenario.timelines.switch is None
    assert scenario.timelines.active.storage_id == after
    assert begun is None or begun.closing or not scenario.there(begun.timeline)
