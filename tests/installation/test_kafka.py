"""A Kafka that was emptied, restored from an older state or replaced is found at start and by `rioni verify`."""

import contextlib
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.system.storages import CreateStorage
from rioni.commands.timelines.timelines import StartSwitch
from rioni.config.settings import Config
from rioni.domain.system.anchors import DataMismatch
from rioni.domain.system.settings import LossAccepted
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.position import TimelinePosition
from rioni.installation import kafka
from rioni.installation.acceptance import accept_loss
from rioni.installation.anchoring import StoreMarks
from rioni.installation.infrastructure import build_infrastructure
from rioni.projections.queries.timeline_reader import read_after
from rioni.server.startup import prepare_startup
from rioni.storage.kafka.topics.topics import UNCLEAN
from tests.support.builders import event_type_spec
from tests.support.verification import findings
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.kafka

EVENTS = [b'{"number":%d}' % number for number in range(10)]


class Installation:
    """A broker without HTTP on one machine, whose events are in Kafka."""

    def __init__(self, data: Path, servers: str) -> None:
        self.config = Config(data=data, kafka=servers or None)
        self.prefix = f"{uuid4()}-"

    @contextlib.contextmanager
    def running(self, *, marked: bool = True):
        """A running broker, which records its high-water marks when it stops, unless it is killed."""
        with (
            prepare_startup(self.config) as directory,
            contextlib.closing(build_infrastructure(self.config, directory)) as base,
        ):
            yield base
            if marked:
                StoreMarks(base).note(everything=True)

    def create(self, base, *names: str) -> None:
        if base.registry.storage("kafka") is None:
            configuration = {"topic_prefix": self.prefix}
            storage = StorageEntry(id="kafka", storage_type="kafka", default=True, configuration=configuration)
            base.bus.dispatch(CreateStorage(storage=storage), base.system_context())
        for name in names:
            base.bus.dispatch(CreateEventType(spec=event_type_spec(name=name)), base.system_context())

    def topic(self, base, name: str = "a") -> str:
        base.registry.refresh()
        return self.prefix + base.registry.timelines(name).active.topic

    def refusal(self) -> str:
        """The error of a rejected start; `verify` finds the same."""
        with pytest.raises(DataMismatch) as refused, self.running():
            pass
        assert set(refused.value.findings) <= set(findings(self.config))
        return str(refused.value)


def publish(base, name: str = "a") -> int:
    """Publish 10 events; return the position of the first."""
    base.registry.refresh()
    timeline = base.registry.timelines(name).active
    return base.adapters.stores.of(timeline.storage_id).append(timeline.topic, {0: EVENTS})[0]


def read(base, after: TimelinePosition, name: str = "a") -> list[tuple[int, int, bytes]]:
    """All events after a timeline position: order, position and JSON."""
    base.registry.refresh()
    timelines, found = base.registry.timelines(name), []
    while True:
        order, chunks = read_after(timelines, base.adapters.stores, 0, after, 10**6)
        if not chunks:
            return found
        for chunk in chunks:
            first = max(chunk.first, after.position + 1 if order == after.order else 0)
            found += [(order, place, bytes(chunk.cut(place, place + 1))) for place in range(first, chunk.next)]
        after = TimelinePosition(order, chunks[-1].next - 1)


@pytest.fixture(autouse=True)
def confirmed_soon(monkeypatch):
    monkeypatch.setattr(kafka, "CONFIRM_S", 0.2)


@pytest.fixture
def admin(kafka_cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_cluster.kafka})


@pytest.fixture
def broker(tmp_path, kafka_cluster) -> Installation:
    """A broker that has published 10 events."""
    broker = Installation(tmp_path / "data", kafka_cluster.kafka)
    with broker.running() as base:
        broker.create(base, "a")
        publish(base)
    return broker


def empty(admin: AdminClient, topic: str, *, recreate: bool = True) -> None:
    """Delete a topic, and create it again."""
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)
    if recreate:
        admin.create_topics([NewTopic(topic, 1, 1, config={UNCLEAN: "false"})])[topic].result()
        wait_until(lambda: topic in admin.list_topics(timeout=WAIT_S).topics)


def test_a_kafka_with_all_published_events_is_accepted(broker, admin):
    with broker.running(marked=False) as base:
        publish(base)
        topic = broker.topic(base)
    # Retention and compaction never make the end of a partition earlier.
    admin.delete_records([TopicPartition(topic, 0, 20)])[TopicPartition(topic, 0)].result()
    before = threading.active_count()
    with broker.running() as base:
        publish(base)
        broker.create(base, "b", "c")
        base.bus.dispatch(DeleteEventType(name="b"), base.system_context())
    assert findings(broker.config) == []
    assert threading.active_count() == before


def test_an_emptied_topic_is_rejected(broker, admin):
    with broker.running() as base:
        topic = broker.topic(base)
    empty(admin, topic)
    text = broker.refusal()
    assert "Storage kafka: in Kafka 1 partition end before the last recorded position: a, partition 0, at -1" in text
    assert "accept-loss" in text


def test_a_missing_topic_is_rejected(broker, admin):
    with broker.running() as base:
        topic = broker.topic(base)
    empty(admin, topic, recreate=False)
    assert "Storage kafka: Kafka lacks the topics of 1 event type: a." in broker.refusal()


def test_another_cluster_is_rejected(broker, other_kafka_cluster):
    broker.config = Config(data=broker.config.data, kafka=other_kafka_cluster.kafka)
    assert "is another cluster" in broker.refusal()


def test_an_unreachable_kafka_is_not_compared(broker):
    broker.config = Config(data=broker.config.data, kafka="127.0.0.1:1", kafka_request_timeout_s=1)
    with capture_logs() as logged, broker.running(marked=False):
        pass
    assert [line["storage_id"] for line in logged if "was not compared" in line["event"]] == ["kafka"]


def test_high_water_marks_only_rise_and_are_deleted_with_their_topics(broker):
    with broker.running() as base:
        topic = base.registry.timelines("a").active.topic
        store = base.adapters.stores.of("kafka")
        marks, others = StoreMarks(base), StoreMarks(base)
        first = publish(base)
        taken = store.take_ends()
        assert taken[1] == {topic: {0: first + 10}}
        assert store.take_ends() is None
        publish(base)
        marks._note_appended()
        others._ends = {f"topic:{topic}": {0: 1}}  # of another process, which was slow
        others._note_appended()
        assert marks._read()[f"topic:{topic}"] == f"[{first + 20}]"
        assert marks._read()["kafka:kafka"] == taken[0]
        base.bus.dispatch(DeleteEventType(name="a"), base.system_context())
        marks.note(everything=True)
        assert f"topic:{topic}" not in marks._read()


def test_marks_that_could_not_be_recorded_are_recorded_later(broker, monkeypatch):
    with broker.running() as base:
        marks = StoreMarks(base)
        first = publish(base)
        with monkeypatch.context() as patched:
            patched.setattr("rioni.installation.anchoring.raise_marks", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                marks._note_appended()
        marks._note_appended()
        assert marks._read()[f"topic:{base.registry.timelines('a').active.topic}"] == f"[{first + 10}]"


# --- continuing after an accepted loss ---


@pytest.mark.parametrize("recreate", [True, False])
def test_events_after_an_accepted_loss_go_to_a_new_timeline(broker, admin, recreate):
    with broker.running() as base:
        broker.create(base, "whole")
        publish(base, "whole")
        topic = broker.topic(base)
    empty(admin, topic, recreate=recreate)
    found = accept_loss(broker.config, "the disk died")
    assert len(found) == 1
    assert accept_loss(broker.config, "again") == []
    with broker.running() as base:
        events = [entry.event for entry in base.log.entries(0, 100)]
        assert [each for each in events if isinstance(each, LossAccepted)] == [
            LossAccepted(findings=tuple(found), reason="the disk died")
        ]
        timelines = base.registry.timelines("a")
        assert [each.latest_position for each in timelines.timelines] == [(-1,), None]
        assert len(base.registry.timelines("whole").timelines) == 1
        first = publish(base)
        expected = [(2, first + number, event) for number, event in enumerate(EVENTS)]
        # An older cursor keeps its position, before all new events.
        assert read(base, TimelinePosition(1, 9)) == expected
        assert read(base, TimelinePosition(1, 4)) == expected
        assert [event for _, _, event in read(base, TimelinePosition(1, -1), "whole")] == EVENTS
    with broker.running():
        pass
    assert findings(broker.config) == []


def test_a_closed_timeline_that_lost_its_topic_is_skipped(broker, admin):
    with broker.running() as base:
        topic = broker.topic(base)
        base.bus.dispatch(StartSwitch(event_type="a", storage_id="kafka"), base.system_context())
        first = publish(base)
    empty(admin, topic, recreate=False)
    assert "lacks the topics of 1 event type: a" in broker.refusal()
    assert accept_loss(broker.config, "x")
    with broker.running() as base:
        assert [order for order, _, _ in read(base, TimelinePosition(1, -1))] == [2] * 10
        assert read(base, TimelinePosition(1, -1))[0][1] == first
        assert len(base.registry.timelines("a").timelines) == 2


def test_another_cluster_can_be_accepted(broker, other_kafka_cluster):
    broker.config = Config(data=broker.config.data, kafka=other_kafka_cluster.kafka)
    assert "is another cluster" in accept_loss(broker.config, "moved")[0]
    with broker.running() as base:
        first = publish(base)
        assert read(base, TimelinePosition(1, 9)) == [(2, first + number, event) for number, event in enumerate(EVENTS)]


def test_a_storage_without_events_need_not_be_reachable(tmp_path):
    """It may have been named before its Kafka is there."""
    broker = Installation(tmp_path / "data", "")
    configuration = {"bootstrap_servers": "127.0.0.1:1"}
    storage = StorageEntry(id="later", storage_type="kafka", default=False, configuration=configuration)
    with broker.running() as base:
        base.bus.dispatch(CreateStorage(storage=storage), base.system_context())
    assert findings(broker.config) == []
