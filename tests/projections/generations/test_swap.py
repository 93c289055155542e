"""Generations take the place of the live read models and give it back, on both databases."""

from itertools import islice
from random import Random

import pytest
from sqlalchemy import Engine, inspect, select, text, update

from rioni.domain.errors import Conflict, Invalid, NotFound
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.generations.generation import check_name, find, known, models_named, remove
from rioni.projections.generations.swap import promote, rollback
from rioni.projections.log_rows import CorruptLog
from rioni.projections.projector import Projector
from rioni.projections.tables import AUDIT_LOG, EVENT_TYPES, READ_MODELS, STATES, TRACKING_NAME
from rioni.sql.engines import snapshot, writing
from rioni.sql.log_tables import GENERATIONS, LOG, TRACKING
from tests.support.history import Author, entries


NOW = "2026-11-20T12:00:00.000Z"


def contents(engine: Engine) -> dict[str, list[tuple]]:
    with engine.connect() as connection:
        return {
            each.name: sorted(map(tuple, connection.execute(select(each))), key=repr)
            for each in READ_MODELS.sorted_tables
        }


def schema(engine: Engine) -> dict[str, object]:
    seen = inspect(engine)
    return {
        each.name: (
            [(column["name"], column["nullable"]) for column in seen.get_columns(each.name)],
            seen.get_pk_constraint(each.name)["constrained_columns"],
            sorted((index["name"], tuple(index["column_names"])) for index in seen.get_indexes(each.name)),
        )
        for each in READ_MODELS.sorted_tables
    }


def names(engine: Engine) -> list[str]:
    with snapshot(engine) as connection:
        return [each.name for each in known(connection)]


def shown(engine: Engine) -> int:
    with snapshot(engine) as connection:
        return Projector().position(connection)


def damage(engine: Engine) -> None:
    """Change live rows, as an operator with a SQL shell might."""
    with writing(engine) as connection:
        connection.execute(update(STATES).values(kind="damaged"))
        connection.execute(update(AUDIT_LOG).values(actor="mallory"))


def test_a_generation_becomes_live_up_to_date_and_what_was_live_comes_back(engine, write, build):
    log = entries(Author(Random(3)).commands())
    write(islice(log, 80))
    build("green")
    write(islice(log, 40))
    right, tables = contents(engine), schema(engine)
    damage(engine)
    wrong = contents(engine)

    assert promote(engine, "green", NOW).position == 80
    assert (contents(engine), schema(engine)) == (right, tables)
    assert names(engine) == ["previous"]
    assert shown(engine) == 120

    assert rollback(engine, NOW).created_at == NOW
    assert (contents(engine), schema(engine)) == (wrong, tables)
    write(islice(log, 30))
    rollback(engine, NOW)
    assert shown(engine) == 150
    assert schema(engine) == tables
    build("green")
    promote(engine, "green", NOW)
    with snapshot(engine) as connection:
        assert find(connection, "previous").position == 150
    assert names(engine) == ["previous"]


def test_some_read_models_are_replaced_and_the_others_stay(engine, write, build):
    log = entries(Author(Random(4)).commands())
    write(islice(log, 100))
    right, tables = contents(engine), schema(engine)
    damage(engine)
    with writing(engine) as connection:
        connection.execute(EVENT_TYPES.insert().values(name="ghost", owning_application="", body="{}"))
    build("green", models_named("event-types, audit-log"))
    promote(engine, "green", NOW)
    assert contents(engine) == right
    assert schema(engine) == tables
    with snapshot(engine) as connection:
        assert set(find(connection, "previous").tables) == {"states", "event_types", "schemas", "audit_log"}
    rollback(engine, NOW)
    assert ("ghost", "", "{}") in contents(engine)["event_types"]
    assert schema(engine) == tables


def test_some_read_models_are_not_replaced_beside_others_that_are_behind(engine, write, build):
    write(islice(entries(Author(Random(4)).commands()), 20))
    build("green", ["audit_log"])
    with writing(engine) as connection:
        connection.execute(update(TRACKING).where(TRACKING.c.name == TRACKING_NAME).values(position=19))
    before = contents(engine)
    with pytest.raises(Conflict, match="rebuild all of them"):
        promote(engine, "green", NOW)
    assert contents(engine) == before
    assert names(engine) == ["green"]


def test_what_is_not_there_or_not_usable_is_refused(engine, write, build):
    write(islice(entries(Author(Random(5)).commands()), 20))
    with pytest.raises(NotFound, match="no read models named previous"):
        rollback(engine, NOW)
    build("green")
    tracked = TRACKING.c.name == f"{TRACKING_NAME}__green"
    with writing(engine) as connection:
        connection.execute(update(TRACKING).where(tracked).values(fold=FOLD_VERSION + 1))
    with pytest.raises(Conflict, match="version 2 of the fold"):
        promote(engine, "green", NOW)
    with writing(engine) as connection:
        connection.execute(update(TRACKING).where(tracked).values(fold=FOLD_VERSION, position=21))
    with pytest.raises(Conflict, match="show position 21, which the log does not have"):
        promote(engine, "green", NOW)
    with writing(engine) as connection:
        connection.execute(update(TRACKING).where(tracked).values(position=20))
        connection.execute(text("ALTER TABLE storages__green ADD COLUMN more TEXT"))
    with pytest.raises(Conflict, match="storages__green is not one of this release"):
        promote(engine, "green", NOW)
    with writing(engine) as connection:
        assert len(remove(connection, "green")) == len(READ_MODELS.tables)
        assert remove(connection, "green") == []
        assert connection.execute(select(GENERATIONS)).all() == []


def test_a_damaged_log_is_not_folded_into_what_becomes_live(engine, write, build):
    log = entries(Author(Random(6)).commands())
    write(islice(log, 20))
    build("green")
    write(islice(log, 20))
    before = contents(engine)
    with writing(engine) as connection:
        connection.execute(update(LOG).where(LOG.c.position == 30).values(actor="mallory"))
    with pytest.raises(CorruptLog, match="position 30"):
        promote(engine, "green", NOW)
    assert contents(engine) == before


@pytest.mark.parametrize("name", ["live", "new", "previous", "", "Green", "1", "a-b", "x" * 21, "x;drop"])
def test_names_that_can_not_be_part_of_a_table_are_refused(name):
    with pytest.raises(Invalid, match="can't be the name"):
        check_name(name)


def test_unknown_read_models_are_refused():
    with pytest.raises(Invalid, match=r"There is no read model 'everything'; there are states, event-types"):
        models_named("audit-log,everything")
