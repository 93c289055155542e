"""The log reveals changed, cut and missing events, even if the store was made consistent again."""

import contextlib
import sqlite3
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.config.settings import Config
from rioni.domain.ports.event_store import Chunk
from rioni.domain.system.anchors import EventChainsAnchored
from rioni.installation.acceptance import accept_loss
from rioni.installation.database import database_url
from rioni.installation.infrastructure import build_infrastructure
from rioni.installation.stored_events import chain_findings
from rioni.server.services import build_chain_anchoring
from rioni.server.startup import prepare_startup
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.events.chunks import CHUNK_COLUMNS, decode, encode_chain
from rioni.storage.embedded.events.partitions import Partition
from rioni.storage.sql.read_only import read_only_engine
from tests.support.builders import event_type_spec
from tests.support.verification import findings as all_findings


DAY_MS = 86_400_000


class Broker:
    """A broker without HTTP."""

    def __init__(self, base) -> None:
        self.base, self.anchoring = base, build_chain_anchoring(base, base.system_context)

    @property
    def store(self):
        return self.base.adapters.stores.of("default")

    @property
    def topic(self) -> str:
        self.base.registry.refresh()
        return self.base.registry.timelines("a").active.topic

    def publish(self, *names: str) -> None:
        for name in names:
            self.store.append(self.topic, {0: [b'{"name":"%s"}' % name.encode()]})


@contextlib.contextmanager
def running(data: Path):
    config = Config(data=data, retention_min_ms=0)
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        yield Broker(base)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped broker with three chunks in the log's anchors, the first expired, and one that came afterwards."""
    data = tmp_path / "data"
    with running(data) as broker:
        broker.base.bus.dispatch(CreateEventType(spec=event_type_spec(name="a")), broker.base.system_context())
        broker.publish("one", "two")
        broker.anchoring.anchor()
        broker.publish("three")
        broker.anchoring.anchor()
        broker.anchoring.anchor()
        broker.publish("four")
    return data


def forge(data: Path, change: Callable[[list[Chunk]], list[Chunk]]) -> None:
    """Change the chunks of the only partition, and compute all that is derived from them again."""
    with contextlib.closing(sqlite3.connect(data / "events.db")) as connection, connection:
        (row,) = connection.execute("SELECT id, oldest, next, recorded_at_ms, topic FROM partitions").fetchall()
        before, topic = Partition(*row[:4]), row[4]
        rows = connection.execute(f"SELECT {CHUNK_COLUMNS} FROM chunks ORDER BY key").fetchall()
        chunks = change([decode(each) for each in rows])
        heads: dict[int, bytes] = {}
        new = list(encode_chain([(before.id, chunk) for chunk in chunks], heads))
        connection.execute("DELETE FROM chunks")
        connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", new)
        after = before._replace(oldest=chunks[0].first, next=chunks[-1].next)
        values = (after.oldest, after.next, after.checksum(topic, 0), heads[before.id].hex())
        connection.execute("UPDATE partitions SET oldest = ?, next = ?, checksum = ?, head = ?, foot = ''", values)


def findings(data: Path) -> list[str]:
    config = Config(data=data)
    with read_only_engine(database_url(config)) as engine:
        return [text.partition("partition 0: ")[2] for text in chain_findings(engine, data, SystemClock().now_ms())]


def renamed(chunk: Chunk) -> Chunk:
    data = chunk.data.replace(b"t", b"T")
    return Chunk(chunk.first, chunk.recorded_at_ms, data, chunk.ends, chunk.headers)


def test_the_log_has_each_head_once_and_verification_finds_nothing(data):
    assert all_findings(data) == []
    with running(data) as broker:
        anchored = [each for each in broker.base.log.entries(0, 100) if isinstance(each.event, EventChainsAnchored)]
        assert [[head.next for head in each.event.heads] for each in anchored] == [[2], [3]]
        assert anchored[0].event.heads[0].hash != anchored[1].event.heads[0].hash
    assert all_findings(data) == []


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda chunks: [*map(renamed, chunks[:2]), *chunks[2:]], "the events before position 2 were changed"),
        (lambda chunks: [*chunks[:2], renamed(chunks[2]), chunks[3]], "the events before position 3 were changed"),
        (lambda chunks: chunks[:2], "the events from position 2 to 2 are missing; entry"),
        (lambda chunks: chunks[:1], "the events from position 1 to 1 are missing; entry"),
        (
            lambda chunks: [Chunk(0, 1, b"[],[],[]", array("I", [2, 5, 8])), chunks[3]],
            "the events before position 2 were changed",
        ),
    ],
    ids=["events", "an event", "the end", "more of the end", "chunks joined"],
)
def test_a_forged_store_does_not_fit_the_log(data, change, finding):
    forge(data, change)
    found = findings(data)
    assert len(found) == 1
    assert found[0].startswith(finding)
    assert any(each.endswith(found[0]) for each in all_findings(data))


def test_events_that_came_after_the_last_anchor_are_not_covered_yet(data):
    forge(data, lambda chunks: [*chunks[:3], renamed(chunks[3])])
    assert all_findings(data) == []


def test_a_missing_partition_is_found(data):
    with contextlib.closing(sqlite3.connect(data / "events.db")) as connection, connection:
        connection.execute("DELETE FROM partitions")
        connection.execute("DELETE FROM chunks")
    (found,) = findings(data)
    assert found.startswith("the partition is missing; entry")


@pytest.mark.parametrize("anchored", [False, True])
def test_events_that_were_deleted_before_their_time_are_found(data, anchored):
    with running(data) as broker:
        assert broker.store.delete_before(broker.topic, SystemClock().now_ms() + DAY_MS) == 4
        if anchored:
            broker.anchoring.anchor()
    (found,) = findings(data)
    assert found.startswith("the events before position 4 are gone, the last of which was stored after entry")
    config = Config(data=data)
    with read_only_engine(database_url(config)) as engine:
        assert not list(chain_findings(engine, data, SystemClock().now_ms() + 3 * DAY_MS))


def test_an_accepted_loss_ends_what_older_anchors_say(data):
    forge(data, lambda chunks: chunks[:1])
    assert findings(data)
    accept_loss(Config(data=data), "disk died")
    assert all_findings(data) == []
    with running(data) as broker:
        broker.publish("five")
        broker.anchoring.anchor()
    assert all_findings(data) == []


def test_after_an_accepted_loss_what_is_left_is_covered_anew(data):
    with running(data) as broker:
        broker.anchoring.anchor()
    assert accept_loss(Config(data=data), "disk died", ["an older backup was restored"])
    with running(data) as broker:
        broker.anchoring.anchor()
    forge(data, lambda chunks: [renamed(chunk) for chunk in chunks])
    (found,) = findings(data)
    assert "were changed, or replaced" in found
