"""Nodes of two releases share a log: every live node can read all new entries, and none folds entries it can't read."""

import contextlib
from functools import partial

import pytest
from sqlalchemy import select

from rioni.domain.aggregates import FORMATS, Format, newest, version_in
from rioni.domain.errors import Unavailable
from rioni.domain.events import DomainEvent
from rioni.sql.log_tables import HEAD, LOG
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.recorder import NotReadByAll, UnreadableEntry
from rioni.storage.sql.engines import create_engine
from tests.contracts.event_log import ORIGIN, TOPICS, Noted
from tests.storage.conftest import ON_BOTH
from tests.support.waiting import wait_until


class ColourNoted(DomainEvent, frozen=True, kw_only=True):
    """The version of `Noted` that the next release writes."""

    TOPIC = "note.noted"
    KEY = "name"

    class_version: int = 2
    name: str
    text: str
    colour: str = ""

    @staticmethod
    def upcast_v1_v2(fields):
        fields["colour"] = ""

    @staticmethod
    def downcast_v2_v1(fields):
        return not fields.pop("colour")


class NoteDeleted(DomainEvent, frozen=True, kw_only=True):
    """A topic that the next release adds."""

    TOPIC = "note.burnt"
    KEY = "name"

    name: str


NEXT_TOPICS = TOPICS | {"note.noted": ColourNoted, "note.burnt": NoteDeleted}
THIS = newest(FORMATS)
NEXT = THIS + 1
NEXT_FORMATS = {**FORMATS, NEXT: Format("1.0.0", {"note.noted": 2, "note.burnt": 1})}


@pytest.fixture
def release(engine):
    """Starts a process of this release, or of the next one; it is notified of changes as workers are."""
    logs = []

    def start(*, is_next):
        added = {"topics": NEXT_TOPICS, "formats": NEXT_FORMATS} if is_next else {"topics": TOPICS}
        log = SqlEventLog(create_engine(engine.url.render_as_string(hide_password=False)), **added)
        logs.append(log)
        log.follow(lambda: None)
        if engine.dialect.name == "postgresql":
            wait_until(lambda: log._head.trusted_position() is not None)
        return log

    yield start
    for log in logs:
        log.close()


def write(log, event):
    with log.transaction() as transaction:
        versions = select(LOG.c.version).where(LOG.c.stream == str(event.stream))
        version = max(transaction.connection.scalars(versions), default=0)
        transaction.append(event.stream, version, [event], ORIGIN)


def stored(engine):
    with engine.connect() as connection:
        return connection.scalar(select(HEAD.c.format)), [
            bytes(data) for data in connection.scalars(select(LOG.c.data))
        ]


def accepted(log: SqlEventLog, event: DomainEvent) -> bool:
    """Whether writing succeeded: PostgreSQL notices with a delay that the connection of another node has ended."""
    with contextlib.suppress(NotReadByAll):
        write(log, event)
        return True
    return False


@pytest.mark.parametrize(
    ("topic", "number", "version"),
    [
        ("note.noted", 1, 1),
        ("note.noted", THIS, 1),
        ("note.noted", NEXT, 2),
        ("note.noted", NEXT + 1, 2),
        ("note.burnt", THIS, 0),
        ("note.burnt", NEXT, 1),
        ("note.other", THIS, 1),
        ("note.other", NEXT, 1),
    ],
)
def test_a_log_format_has_each_topic_in_one_version(topic, number, version):
    assert version_in(topic, number, NEXT_FORMATS) == version


def test_alone_the_next_release_raises_the_format_and_this_release_stops_following(engine, release):
    this = release(is_next=False)
    write(this, Noted(name="a", text="x"))
    assert stored(engine)[0] == THIS
    this.close()
    wait_until(partial(accepted, release(is_next=True), ColourNoted(name="a", text="y", colour="red")))
    assert stored(engine) == (
        NEXT,
        [
            b'{"class_version":1,"name":"a","text":"x"}',
            b'{"class_version":2,"name":"a","text":"y","colour":"red"}',
        ],
    )
    this = release(is_next=False)
    with pytest.raises(UnreadableEntry, match=r"position 2 .* newer release"):
        this.entries(0, 10)
    with pytest.raises(
        Unavailable, match=f"written in format {NEXT}, and this release of Rioni reads it up to format {THIS}"
    ):
        write(this, Noted(name="b", text="x"))
    assert len(stored(engine)[1]) == 2


@pytest.mark.parametrize("migrated_url", ON_BOTH[1:], indirect=True)
def test_while_an_older_node_is_alive_only_its_format_is_written(engine, release):
    older, newer = release(is_next=False), release(is_next=True)
    write(newer, ColourNoted(name="a", text="x"))
    assert [entry.event for entry in older.entries(0, 10)] == [Noted(name="a", text="x")]
    for refused in (ColourNoted(name="a", text="y", colour="red"), NoteDeleted(name="a")):
        with pytest.raises(NotReadByAll, match=rf"reads the log up to format {THIS}.* Upgrade all nodes"):
            write(newer, refused)
    write(older, Noted(name="a", text="y"))
    assert newer.entries(1, 10)[0].event == ColourNoted(name="a", text="y")
    older.close()

    wait_until(partial(accepted, newer, ColourNoted(name="a", text="z", colour="red")))
    write(newer, NoteDeleted(name="a"))
    assert stored(engine)[0] == NEXT
    assert len(stored(engine)[1]) == 4
