"""Projections of users: what they may be called, what their functions may return, and how the tables follow the log."""

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from sqlalchemy import select

from rioni.domain.errors import Invalid
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.custom import KEY, BrokenProjection, Event, Projection, Row, installed
from rioni.projections.custom_tables import LiveProjector, position, prepare, table_of
from rioni.projections.log_rows import StreamFold
from rioni.server.services import CustomProjections
from rioni.sql.log_tables import TRACKING
from rioni.storage.sql.engines import create_engine, reading, writing
from tests.support.broker import empty_registry
from tests.support.history import Author, entries, histories
from tests.support.installing import forget, install
from tests.support.log import append


def count(row: Row | None, event: Event) -> Row | None:
    if event.kind.endswith("deleted"):
        return None
    return {"changes": (row["changes"] if row else 0) + 1, "actor": event.actor, "even": event.position % 2 == 0}


COLUMNS = {"changes": int, "actor": str, "even": bool}
KINDS = ("event-type", "subscription")
COUNTED = Projection("counted", 1, KINDS, COLUMNS, count)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget()


def history(count: int) -> list[LogEntry]:
    return list(islice(entries(Author(Random(9)).commands()), count))


def returning(value: object) -> Projection:
    return Projection("p", 1, KINDS, COLUMNS, lambda _row, _event: value)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Counted"},
        {"name": "x" * 21},
        {"version": 0},
        {"resources": ["event_type"]},
        {"columns": {}},
        {"columns": {KEY: str}},
        {"columns": {"a-b": str}},
        {"columns": {"a": bytes}},
        {"columns": {f"c{number}": int for number in range(65)}},
    ],
    ids=str,
)
def test_what_can_not_be_a_table_is_refused(changed):
    named = {"name": "p", "version": 1, "resources": KINDS, "columns": COLUMNS, "fold": count}
    with pytest.raises(Invalid):
        Projection(**named | changed)


FINE = {"changes": 1, "actor": None, "even": True}


@pytest.mark.parametrize(
    "value",
    [
        7,
        {},
        FINE | {"more": 1},
        FINE | {"changes": 2**63},
        FINE | {"changes": True},
        FINE | {"changes": "1"},
        FINE | {"actor": "a\0"},
        FINE | {"actor": "\ud800"},
        FINE | {"even": 1},
        FINE | {"changes": float("nan")},
    ],
    ids=str,
)
def test_what_is_no_row_is_refused_with_its_position(value):
    (entry,) = history(1)
    wanted = Projection("p", 1, [entry.event.kind], COLUMNS, lambda _row, _event: value)
    with pytest.raises(BrokenProjection, match="projection p failed at position 1"):
        wanted.next_row(None, entry)


def test_functions_see_name_and_realm_of_the_actor():
    """Reference authorization#subjects: subjects of several realms may have one name."""
    seen = {}

    def fold(_row: Row | None, event: Event) -> Row:
        seen[event.position] = (event.actor, event.realm)
        return FINE

    wanted = Projection("p", 1, ["event-type"], COLUMNS, fold)
    log = [entry for entry in history(60) if wanted.follows(entry)]
    for entry in log:
        wanted.next_row(None, entry)
    assert seen == {entry.position: (entry.origin.actor, entry.origin.client.partition("\n")[2]) for entry in log}
    assert {realm for _, realm in seen.values()} == {"", "services", "employees"}


def test_installed_packages_are_found_and_must_not_conflict(monkeypatch):
    install(monkeypatch, [COUNTED])
    assert installed() == [COUNTED]
    other = Projection("counted", 1, KINDS, COLUMNS, count)
    for offered, why in (
        ([COUNTED, other], "Two installed packages"),
        ([Projection(f"p{number}", 1, KINDS, COLUMNS, count) for number in range(33)], "32 are allowed"),
        (["text"], "is no projection"),
    ):
        install(monkeypatch, offered)
        with pytest.raises(Invalid, match=why):
            installed()


@pytest.fixture
def engine(registry_url):
    engine = create_engine(registry_url)
    yield engine
    engine.dispose()


def live(engine, projections, log, parts=1):
    """Append a log in `parts` transactions; the tables follow."""
    projector = LiveProjector(projections)
    with writing(engine) as connection:
        prepare(connection, projections)
    for part in range(parts):
        with writing(engine) as connection:
            found = log[part * len(log) // parts : (part + 1) * len(log) // parts]
            append(connection, found, project=False)
            projector.apply(connection, found)


def contents(engine, projection) -> list[dict]:
    with reading(engine) as connection:
        rows = connection.execute(select(table_of(projection)).order_by(KEY)).mappings()
        return [dict(row) for row in rows]


def folded(log, projection) -> list[dict]:
    """The rows that Spark's executors return: each stream is folded by itself."""
    streams = {}
    for entry in log:
        streams.setdefault(entry.stream, StreamFold([projection])).add(entry)
    rows = [row for each in streams.values() for table, row in each.rows() if table == projection.table]
    return sorted(rows, key=lambda row: row[KEY])


def test_tables_follow_the_log_as_the_bulk_fold_does(engine):
    log = history(150)
    live(engine, [COUNTED], log, parts=7)
    assert contents(engine, COUNTED) == folded(log, COUNTED) != []
    with reading(engine) as connection:
        assert position(connection, COUNTED) == 150


@settings(max_examples=20, deadline=None)
@given(histories())
def test_live_and_bulk_agree_on_any_history(tmp_path_factory, commands):
    path = tmp_path_factory.mktemp("custom") / "registry.db"
    path.write_bytes(empty_registry())
    engine, log = create_engine(f"sqlite:///{path}"), list(entries(commands))
    live(engine, [COUNTED], log, parts=3)
    assert contents(engine, COUNTED) == folded(log, COUNTED)
    engine.dispose()


def test_a_function_that_fails_stops_its_own_table_alone(engine):
    def failing(row: Row | None, event: Event) -> Row | None:
        if event.position > 60:
            raise ZeroDivisionError
        return count(row, event)

    broken, log = Projection("broken", 1, KINDS, COLUMNS, failing), history(100)
    live(engine, [broken, COUNTED], log, parts=9)
    assert contents(engine, COUNTED) == folded(log, COUNTED)
    with reading(engine) as connection:
        shown = position(connection, broken)
        assert 59 < shown < 100
        assert connection.scalar(select(TRACKING.c.position).where(TRACKING.c.name == "read-models")) == 100
    assert contents(engine, broken) == folded(log[:shown], broken)


def test_another_version_gets_an_empty_table(engine):
    live(engine, [COUNTED], history(20))
    newer = Projection("counted", 2, KINDS, {"kind": str}, lambda _row, event: {"kind": event.kind})
    with writing(engine) as connection:
        prepare(connection, [newer])
        prepare(connection, [newer])
        assert (position(connection, newer), position(connection, COUNTED)) == (0, None)
    assert contents(engine, newer) == []


def test_the_leader_brings_new_tables_up_to_date(broker, monkeypatch):
    install(monkeypatch, [COUNTED])
    log = list(broker.log.entries(0, 1_000))
    assert log
    with broker.log.transaction() as transaction:
        prepare(transaction.connection, installed())
    job = CustomProjections(broker.base)
    job.tick()
    assert contents(broker.engine, COUNTED) == folded(log, COUNTED)
    with reading(broker.engine) as connection:
        assert position(connection, COUNTED) == log[-1].position
