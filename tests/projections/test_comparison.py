"""Every change of a row of the read models is found by folding the log, on both databases."""

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from random import Random

import pytest
from sqlalchemy import Engine, delete, insert, select, text, update

from rioni.domain.ports.event_log import LogEntry
from rioni.installation.database import reading_models
from rioni.projections import comparison
from rioni.projections.comparison import Difference, compare
from rioni.projections.tables import READ_MODELS, TRACKING_NAME
from rioni.sql.log_tables import LOG, TRACKING
from rioni.storage.sql.engines import create_engine, writing
from tests.support.history import Author, entries
from tests.support.log import append


ENTRIES = 120
TABLES = [each.name for each in READ_MODELS.sorted_tables]


@pytest.fixture
def engine(registry_url):
    engine = create_engine(registry_url)
    with writing(engine) as connection:
        append(connection, islice(history(), ENTRIES))
    yield engine
    engine.dispose()


@pytest.fixture(params=[comparison.ENTRIES_PER_READ, 7])
def page(request, monkeypatch) -> None:
    """Pages as long as usual, and so short that most streams do not fit into one."""
    monkeypatch.setattr(comparison, "ENTRIES_PER_READ", request.param)
    monkeypatch.setattr(comparison, "_PAGE", comparison._PAGE.limit(request.param))


def history() -> Iterator[LogEntry]:
    author = Author(Random(5))
    return entries(chain([author.command("create_storage")], author.commands()))


def found(engine: Engine) -> list[Difference]:
    return list(compare(partial(reading_models, engine), lambda _done, _total: None))


def changed(value: object) -> object:
    if isinstance(value, bool):
        return not value
    return value + 1_000 if isinstance(value, int) else f"{value or ''}~"


@pytest.mark.usefixtures("page")
def test_read_models_that_the_projection_wrote_are_what_the_log_says(engine):
    steps: list[tuple[int, int]] = []
    assert list(compare(partial(reading_models, engine), lambda *step: steps.append(step))) == []
    assert steps[-1] == (ENTRIES, ENTRIES)


@pytest.mark.parametrize("name", TABLES)
def test_a_changed_removed_or_added_row_is_found_by_its_key_and_resource(engine, name):
    table = READ_MODELS.tables[name]
    keys = list(table.primary_key.columns)
    with engine.connect() as connection:
        rows = [dict(row) for row in connection.execute(select(table)).mappings()]
    assert rows, "the history fills every table"
    for row in rows[-1:]:
        here = [key == row[key.name] for key in keys]
        key = tuple(row[each.name] for each in keys)
        for column in table.columns:
            if not column.primary_key:
                with writing(engine) as connection:
                    connection.execute(update(table).where(*here).values({column: changed(row[column.name])}))
                differences = {each[:3]: each for each in found(engine)}
                assert differences[name, key, "changed"].resource
                # A row for a missing resource is found by the table of resources.
                assert len(differences) == 1 or name == "states"
                with writing(engine) as connection:
                    connection.execute(update(table).where(*here).values(row))
        with writing(engine) as connection:
            connection.execute(delete(table).where(*here))
        assert (name, key, "missing") in {each[:3] for each in found(engine)}
        other = row | {keys[-1].name: changed(row[keys[-1].name])}
        with writing(engine) as connection:
            connection.execute(insert(table), [row, other])
        extra = tuple(other[each.name] for each in keys)
        assert (name, extra, "extra") in {each[:3] for each in found(engine)}
        with writing(engine) as connection:
            connection.execute(delete(table).where(*[each == other[each.name] for each in keys]))
    assert found(engine) == []


def test_read_models_at_another_position_or_of_another_fold_are_named(engine):
    tracked = TRACKING.c.name == TRACKING_NAME
    with writing(engine) as connection:
        connection.execute(update(TRACKING).where(tracked).values(position=ENTRIES - 1))
    assert found(engine)[0] == Difference("tracking", (TRACKING_NAME,), "changed", "", ENTRIES - 1)
    with writing(engine) as connection:
        connection.execute(update(TRACKING).where(tracked).values(position=ENTRIES, fold=99))
    assert [each.table for each in found(engine)] == ["tracking"]


def test_a_stream_that_can_not_be_folded_is_named_and_the_others_are_compared(engine):
    with writing(engine) as connection:
        position, stream = connection.execute(select(LOG.c.position, LOG.c.stream).where(LOG.c.position == 20)).one()
        connection.execute(update(LOG).where(LOG.c.position == position).values(data=b"{"))
        connection.execute(text("UPDATE storages SET body = 'x'"))
    differences = found(engine)
    states = [each for each in differences if each.table == "states"]
    assert [(each.kind, each.key, each.position) for each in states] == [("unknown", (stream,), position)]
    assert {each.table for each in differences} == {"states", "storages"}


def test_entries_appended_meanwhile_are_no_differences(engine):
    following = islice(history(), ENTRIES, None)

    def grow(done: int, _total: int) -> None:
        with writing(engine) as connection:
            append(connection, islice(following, 10))

    assert list(compare(partial(reading_models, engine), grow)) == []
