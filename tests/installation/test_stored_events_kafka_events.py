"""Events in Kafka that were changed, cut off or deleted too early are found by the log, whatever Kafka says."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from sqlalchemy import func, select

from rioni.commands.event_types import CreateEventType
from rioni.commands.system.storages import CreateStorage
from rioni.commands.timelines.timelines import StartSwitch
from rioni.config.settings import Config
from rioni.domain.system.anchors import EventChainsAnchored
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import TimelineDigested
from rioni.installation import kafka
from rioni.installation.acceptance import accept_loss
from rioni.installation.anchoring import StoreMarks
from rioni.installation.database import database_url
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.services import build_chain_anchoring, build_topic_digests
from rioni.server.startup import prepare_startup
from rioni.sql.log_tables import LOG
from rioni.storage.kafka.topics.topics import UNCLEAN
from rioni.storage.sql.read_only import read_only_engine
from tests.support.builders import event_type_spec
from tests.support.server import running_server
from tests.support.verification import findings
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.kafka

EVENTS = [b'{"number":%d}' % number for number in range(10)]


class Installation:
    """A stopped broker with a closed topic of ten events in Kafka, and an open one of three."""

    def __init__(self, data: Path, servers: str, *, digested: bool = True) -> None:
        self.config = Config(data=data, kafka=servers, retention_min_ms=0)
        self.prefix = f"{uuid4()}-"
        self.admin = AdminClient({"bootstrap.servers": servers})
        with self.running() as base:
            storage = StorageEntry(
                id="kafka", storage_type="kafka", default=True, configuration={"topic_prefix": self.prefix}
            )
            base.bus.dispatch(CreateStorage(storage=storage), base.system_context())
            base.bus.dispatch(CreateEventType(spec=event_type_spec(name="a")), base.system_context())
            anchoring = build_chain_anchoring(base, base.system_context)
            anchoring.anchor()
            base.adapters.stores.of("kafka").append(self._active(base), {0: EVENTS})
            base.bus.dispatch(StartSwitch(event_type="a", storage_id="kafka"), base.system_context())
            base.adapters.stores.of("kafka").append(self._active(base), {0: EVENTS[:3]})
            self.closed, self.open = (self.prefix + each.topic for each in base.registry.timelines("a").timelines)
            anchoring.anchor()
            anchoring.anchor()

            def has_digest() -> bool:
                # A topic that can't be read at once is left to the next tick.
                build_topic_digests(base, base.system_context).tick()
                return any(isinstance(each.event, TimelineDigested) for each in base.log.entries(0, 100))

            if digested:
                wait_until(has_digest)

    @contextlib.contextmanager
    def running(self):
        with (
            prepare_startup(self.config) as directory,
            contextlib.closing(build_infrastructure(self.config, directory)) as base,
        ):
            yield base
            StoreMarks(base).note(everything=True)

    def _active(self, base) -> str:
        base.registry.refresh()
        return base.registry.timelines("a").active.topic

    def recorded(self, kind: type) -> list:
        with self.running() as base:
            return [each.event for each in base.log.entries(0, 100) if isinstance(each.event, kind)]

    def findings(self) -> list[str]:
        """The findings of `rioni verify`, without the topic's name."""
        return [each.partition(f"topic {self.closed.removeprefix(self.prefix)}, ")[2] or each for each in self._found()]

    def _found(self) -> list[str]:
        return findings(self.config)

    def delete_before(self, topic: str, position: int) -> None:
        place = TopicPartition(topic, 0, position)
        self.admin.delete_records([place])[place].result(WAIT_S)

    def anchor(self) -> None:
        with self.running() as base:
            build_chain_anchoring(base, base.system_context).anchor()

    def replace(self, events: list[bytes], *, transaction: bool = False) -> None:
        """Delete the closed topic and create it again; the record that ends a transaction takes a position."""
        self.admin.delete_topics([self.closed])[self.closed].result(WAIT_S)
        wait_until(lambda: self.closed not in self.admin.list_topics(timeout=WAIT_S).topics)
        self.admin.create_topics([NewTopic(self.closed, 1, 1, config={UNCLEAN: "false"})])[self.closed].result(WAIT_S)
        wait_until(lambda: self.closed in self.admin.list_topics(timeout=WAIT_S).topics)
        settings = {"bootstrap.servers": self.config.kafka} | ({"transactional.id": self.prefix} if transaction else {})
        producer = Producer(settings)
        if transaction:
            producer.init_transactions(20)
            producer.begin_transaction()
        for event in events:
            producer.produce(self.closed, event, partition=0)
        if transaction:
            producer.commit_transaction(20)
        producer.flush()


def expire_and_replace(broker: Installation) -> None:
    broker.delete_before(broker.closed, 3)
    broker.anchor()
    broker.replace(EVENTS)


@pytest.fixture(autouse=True)
def confirmed_soon(monkeypatch):
    monkeypatch.setattr(kafka, "CONFIRM_S", 0.2)


@pytest.fixture
def broker(tmp_path, kafka_cluster) -> Installation:
    return Installation(tmp_path / "data", kafka_cluster.kafka)


def test_ranges_and_digests_are_recorded_once_and_verification_finds_nothing(broker):
    assert broker.findings() == []
    ranges = broker.recorded(EventChainsAnchored)
    assert [[(head.first, head.next, head.hash) for head in each.heads] for each in ranges] == [
        [(0, 0, "")],
        [(0, 10, ""), (0, 3, "")],
    ]
    (digested,) = broker.recorded(TimelineDigested)
    assert (digested.storage, broker.prefix + digested.topic, digested.next) == ("kafka", broker.closed, (10,))
    assert [(each.first, each.next, each.records) for each in digested.blocks] == [(0, 10, 10)]


def test_a_server_reads_topics_that_were_closed_before_its_start(tmp_path, kafka_cluster):
    broker = Installation(tmp_path / "data", kafka_cluster.kafka, digested=False)

    def has_digest() -> bool:
        with read_only_engine(database_url(broker.config)) as engine, engine.connect() as connection:
            return bool(connection.scalar(select(func.count()).where(LOG.c.topic == TimelineDigested.TOPIC)))

    assert not has_digest()
    with running_server(broker.config.data, environment={"RIONI_KAFKA": broker.config.kafka}) as server:
        wait_until(has_digest)
    assert not [line for line in server.lines if "job failed" in line]
    assert broker.findings() == []
    broker.replace(EVENTS)
    assert len(broker.findings()) == 1


@pytest.mark.parametrize(
    ("tamper", "finding"),
    [
        (
            lambda broker: broker.replace([*EVENTS[:9], b'{"number":0}']),
            "partition 0, positions 0 to 9: records were changed, or replaced; entry",
        ),
        (
            lambda broker: broker.replace(EVENTS),
            "partition 0, positions 0 to 9: records were changed, or replaced; entry",
        ),
        (
            lambda broker: broker.replace(EVENTS[:9], transaction=True),
            "partition 0, positions 0 to 9: 1 of 10 records are missing; entry",
        ),
        (lambda broker: broker.replace(EVENTS[:8]), "partition 0, the events from position 8 to 9 are missing; entry"),
        (lambda broker: broker.delete_before(broker.closed, 4), "partition 0, the events before position 4 are gone"),
        (expire_and_replace, "partition 0, there are events from position 0 on; entry"),
    ],
    ids=["an event", "times of events", "an event is missing", "the end", "the beginning", "events are back"],
)
def test_what_is_not_as_the_log_recorded_it_is_found(broker, tamper: Callable[[Installation], None], finding):
    tamper(broker)
    found = broker.findings()
    assert [each for each in found if each.startswith(finding) and each.endswith("(affects event-type:a)")], found


@pytest.mark.parametrize(
    "tamper",
    [lambda broker: broker.delete_before(broker.closed, 4), lambda broker: broker.replace(EVENTS)],
    ids=["the beginning", "times of events"],
)
def test_an_accepted_loss_ends_what_the_log_says_of_kafka(broker, tamper: Callable[[Installation], None]):
    assert accept_loss(broker.config, "nothing") == []
    tamper(broker)
    (finding,) = broker._found()
    assert finding == f"{accept_loss(broker.config, 'operator error')[0]} (affects event-type:a)"
    assert broker._found() == []
    broker.anchor()
    assert broker._found() == []
