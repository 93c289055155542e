import threading
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, inspect, select, update

from rioni.domain.errors import Conflict
from rioni.projections.bulk.rebuild import Order, RebuildReport, rebuild
from rioni.projections.fold import EMPTY, fold
from rioni.projections.generations.generation import WORKING, Generation, create, finish_load
from rioni.projections.log_rows import CorruptLog
from rioni.projections.projector import Projector
from rioni.projections.tables import EVENT_TYPES, READ_MODELS, STATES
from rioni.sql.engines import open_engine
from rioni.sql.log_tables import HEAD, LOG, TRACKING
from rioni.storage.sql.database_locks import rebuild_lock
from tests.support.history import Author, entries, histories
from tests.support.log import clear


pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def history(count: int, seed: int = 7):
    return islice(entries(Author(Random(seed)).commands()), count)


def silent(*_: object) -> None:
    """Show no progress."""


def run(url: str, scratch: Path, *, found=silent, progress=silent, **order) -> RebuildReport:
    alone = partial(rebuild_lock, open_engine(url))
    return rebuild(url, scratch, Order(**order), progress=progress, found=found, alone=alone)


def differences(url: str, scratch: Path) -> set:
    """The differences that a dry run finds, as table, key and kind."""
    found = []
    report = run(url, scratch, dry_run=True, found=found.append)
    assert report.differences == len(found)
    return {each[:3] for each in found}


def contents(engine) -> dict[str, Sequence[tuple]]:
    with engine.connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in READ_MODELS.sorted_tables
        }


def replayed(log) -> dict[str, Sequence[tuple]]:
    """The read models by definition: every stream folded by itself, every change applied to a dictionary."""
    folded = {}
    tables = {table.name: {} for table in READ_MODELS.sorted_tables}
    for entry in log:
        folded[entry.stream], changes = fold(folded.get(entry.stream, EMPTY), entry)
        for table, key, row in changes:
            if row is None:
                tables[table] = {k: v for k, v in tables[table].items() if k[: len(key)] != key}
            else:
                tables[table][key] = tuple(row[column.name] for column in READ_MODELS.tables[table].columns)
    return {name: [rows[key] for key in sorted(rows)] for name, rows in tables.items()}


def sorted_by_key(found: dict[str, Sequence[tuple]]) -> dict[str, Sequence[tuple]]:
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def schema(engine) -> dict[str, object]:
    seen = inspect(engine)
    return {
        name: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(name)],
            seen.get_pk_constraint(name),
            sorted((index["name"], tuple(index["column_names"])) for index in seen.get_indexes(name)),
        )
        for name in seen.get_table_names()
    }


# One example is one log of many histories: starting a Spark job costs more than a thousand commands.
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(many=st.lists(histories(), min_size=20, max_size=20))
def test_replay_live_and_spark_agree_on_any_history(many, url, engine, write, spark, tmp_path):
    clear(engine)
    log = list(entries(chain.from_iterable(many)))
    write(log)
    live = contents(engine)

    run(url, tmp_path)

    assert sorted_by_key(replayed(log)) == sorted_by_key(live)
    assert live == contents(engine)


def test_replay_live_and_spark_agree_on_a_long_history(url, engine, write, spark, tmp_path):
    log = list(history(600))
    write(log)
    live, tables = contents(engine), schema(engine)

    report = run(url, tmp_path / "scratch")

    assert sorted_by_key(replayed(log)) == sorted_by_key(live) == sorted_by_key(contents(engine))
    assert tables == schema(engine)
    assert report.entries == 600
    assert dict(report.rows) == {name: len(rows) for name, rows in live.items()}
    with engine.connect() as connection:
        assert Projector().position(connection) == 600


def test_an_empty_log_gives_empty_read_models(url, engine, spark, tmp_path):
    with engine.begin() as connection:
        connection.execute(EVENT_TYPES.insert().values(name="ghost", owning_application="", body="{}"))
    assert run(url, tmp_path).entries == 0
    assert not any(contents(engine).values())


def test_a_dry_run_names_every_kind_of_difference_and_changes_nothing(url, engine, write, spark, tmp_path):
    write(history(500))
    assert not differences(url, tmp_path)
    with engine.begin() as connection:
        gone, changed = connection.scalars(select(STATES.c.stream).order_by(STATES.c.stream).limit(2))
        connection.execute(delete(STATES).where(STATES.c.stream == gone))
        connection.execute(update(STATES).where(STATES.c.stream == changed).values(state=None, version=99))
        connection.execute(EVENT_TYPES.insert().values(name="ghost", owning_application="", body="{}"))
        connection.execute(update(TRACKING).values(position=499))
    before = contents(engine)

    assert differences(url, tmp_path) == {
        ("states", (gone,), "missing"),
        ("states", (changed,), "changed"),
        ("event_types", ("ghost",), "extra"),
        ("tracking", ("read-models",), "changed"),
    }
    assert before == contents(engine)
    assert not [name for name in inspect(engine).get_table_names() if name.endswith(f"__{WORKING}")]


def changed_data(connection):
    connection.execute(update(LOG).where(LOG.c.position == 123).values(actor="bob"))


def missing_entry(connection):
    connection.execute(delete(LOG).where(LOG.c.position == 123))


def changed_stream(connection):
    connection.execute(update(LOG).where(LOG.c.position == 123).values(stream="~"))


def missing_tail(connection):
    connection.execute(delete(LOG).where(LOG.c.position >= 123))


def replaced_tail(connection):
    connection.execute(update(HEAD).values(hash=bytes(32)))


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (changed_data, "entry at position 123 is not the one"),
        (changed_stream, "entry at position 123 is not the one"),
        (missing_entry, "entry at position 123 is missing"),
        (missing_tail, "entry at position 123 is missing"),
        (replaced_tail, "entry at position 200 was replaced"),
    ],
)
def test_a_damaged_log_stops_the_rebuild_and_is_reported(damage, finding, url, engine, write, spark, tmp_path):
    write(history(200))
    before = contents(engine)
    with engine.begin() as connection:
        damage(connection)
    with pytest.raises(CorruptLog, match=finding):
        run(url, tmp_path)
    assert before == contents(engine)


def test_commands_run_during_a_rebuild_are_part_of_its_result(url, engine, write, spark, tmp_path):
    log = history(100_000)
    write(islice(log, 1_000))
    over = threading.Event()
    written = 0

    def commands() -> None:
        nonlocal written
        while not over.wait(0.02):
            write(islice(log, 3))
            written += 3

    writer = threading.Thread(target=commands)
    writer.start()
    try:
        run(url, tmp_path)
        report = run(url, tmp_path, dry_run=True)
    finally:
        over.set()
        writer.join()

    assert written > 0
    assert report.entries > 1_000
    assert report.differences == 0
    with engine.connect() as connection:
        assert Projector().position(connection) == 1_000 + written
    assert sorted_by_key(contents(engine)) == sorted_by_key(replayed(history(1_000 + written)))


def test_a_failed_rebuild_leaves_only_the_live_tables(url, engine, write, spark, tmp_path):
    write(history(300))
    before, tables = contents(engine), schema(engine)

    def progress(phase, done, total):
        if phase == "fold":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(url, tmp_path, progress=progress)
    assert before == contents(engine)
    assert tables == schema(engine)


def test_the_remains_of_a_killed_rebuild_are_removed_by_the_next(url, engine, write, spark, tmp_path):
    write(history(300))
    tables = schema(engine)
    create(engine, Generation(WORKING))
    finish_load(engine, Generation(WORKING), 17)
    (tmp_path / "rebuild-left").mkdir()
    run(url, tmp_path)
    assert tables == schema(engine)
    assert not (tmp_path / "rebuild-left").exists()
    assert not differences(url, tmp_path)


def test_a_second_rebuild_of_one_database_is_rejected_whatever_its_folder(url, engine, write, spark, tmp_path):
    refused = []

    def progress(phase, done, total):
        if phase == "start" and not refused:
            with pytest.raises(Conflict, match="Another rebuild of this database is running") as failure:
                run(url, tmp_path / "another machine")
            refused.append(failure)

    write(history(50))
    run(url, tmp_path, progress=progress)
    assert len(refused) == 1
