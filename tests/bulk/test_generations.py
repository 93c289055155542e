"""Read models of any moment, next to the live ones, in part, and continued: the same as a replay gives."""

import pytest
from sqlalchemy import Engine, select, update

from rioni.domain.errors import Conflict, NotFound
from rioni.projections.generations.generation import Generation, find, models_named
from rioni.projections.generations.swap import promote
from rioni.projections.log_rows import CorruptLog
from rioni.projections.tables import READ_MODELS
from rioni.sql.engines import snapshot
from rioni.sql.log_tables import LOG
from tests.bulk.test_rebuild import contents, history, replayed, run, sorted_by_key


pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOW = "2026-11-20T12:00:00.000Z"


def built(engine: Engine, name: str) -> dict[str, list[tuple]]:
    """The rows of a generation, by the live tables."""
    with snapshot(engine) as connection:
        tables = Generation(name, find(connection, name).tables).tables
        return {live: [tuple(row) for row in connection.execute(select(table))] for live, table in tables.items()}


@pytest.mark.parametrize("position", [77, 300])
def test_read_models_of_a_moment_are_those_of_the_entries_up_to_it(position, url, engine, write, spark, tmp_path):
    log = list(history(300))
    write(log)
    live = contents(engine)
    report = run(url, tmp_path, into="then", upto=position)
    assert (report.entries, report.differences) == (position, 0)
    assert sorted_by_key(built(engine, "then")) == sorted_by_key(replayed(log[:position]))
    assert contents(engine) == live
    promote(engine, "then", NOW)
    assert sorted_by_key(contents(engine)) == sorted_by_key(replayed(log))


def test_only_some_read_models_are_built_and_replaced(url, engine, write, spark, tmp_path):
    log = list(history(300))
    write(log)
    live = contents(engine)
    with engine.begin() as connection:
        for name in ("schemas", "subscriptions"):
            connection.execute(READ_MODELS.tables[name].update().values(body="damaged"))
    damaged = contents(engine)
    found = []
    report = run(url, tmp_path, tables=models_named("event-types"), found=found.append)
    assert set(report.rows) == {"states", "event_types", "schemas"}
    assert {(each.table, each.kind, *each.live, *each.rebuilt) for each in found} == {
        ("schemas", "changed", "body", "body")
    }
    assert contents(engine) == live | {"subscriptions": damaged["subscriptions"]}


def test_a_generation_is_continued_once_the_log_before_is_proved_to_be_the_same(url, engine, write, spark, tmp_path):
    log = list(history(400))
    write(log[:300])
    with pytest.raises(NotFound, match="no read models named nightly"):
        run(url, tmp_path, into="nightly", incremental=True)
    run(url, tmp_path, into="nightly", tables=models_named("audit-log"))
    write(log[300:])
    report = run(url, tmp_path, into="nightly", incremental=True)
    assert (report.entries, report.differences) == (300, 0)
    wanted = {name: rows for name, rows in replayed(log).items() if name in {"states", "audit_log"}}
    assert sorted_by_key(built(engine, "nightly")) == sorted_by_key(wanted)
    with snapshot(engine) as connection:
        assert find(connection, "nightly").checked.position == 400
    with engine.begin() as connection:
        connection.execute(update(LOG).where(LOG.c.position == 123).values(actor="mallory"))
    with pytest.raises(CorruptLog, match="position 123"):
        run(url, tmp_path, into="nightly", incremental=True)
    assert sorted_by_key(built(engine, "nightly")) == sorted_by_key(wanted)


def test_a_log_that_was_written_anew_is_not_continued(url, engine, write, spark, tmp_path):
    """Its chain is right, but not the one that was checked before."""
    write(history(50))
    run(url, tmp_path, into="nightly")
    with engine.begin() as connection:
        connection.execute(update(LOG).where(LOG.c.position == 50).values(hash=bytes(32)))
    with pytest.raises(CorruptLog, match="position 50"):
        run(url, tmp_path, into="nightly", incremental=True)


def test_a_generation_of_another_release_is_not_continued(url, engine, write, spark, tmp_path, monkeypatch):
    write(history(20))
    run(url, tmp_path, into="nightly")
    monkeypatch.setattr("rioni.projections.generations.swap.FOLD_VERSION", 99)
    with pytest.raises(Conflict, match="version 1 of the fold"):
        run(url, tmp_path, into="nightly", incremental=True)
