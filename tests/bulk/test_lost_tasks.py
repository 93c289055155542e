"""Tasks that are repeated, or that continue after their rebuild has ended."""

import pytest
from sqlalchemy import func, select

from rioni.domain.errors import Conflict
from rioni.projections.bulk.executors import CopySink
from rioni.projections.bulk.loading import database, targets
from rioni.projections.generations.generation import WORKING, Generation, create
from rioni.projections.generations.rebuilds import RebuildPlan, begin
from rioni.sql.log_tables import REBUILD_TASKS


PLAN = RebuildPlan(WORKING, [], incremental=False, fold=1, upto=None, position=1, hash="", tasks=8)
ROWS = [(f"order-{number}", "shop", "{}") for number in range(3)]


@pytest.mark.parametrize("url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True)
def test_a_task_of_an_ended_rebuild_adds_nothing_to_the_tables_of_the_next_one(url, engine):
    generation = Generation(WORKING)
    (target,) = [each for each in targets(engine, generation) if each.name == "event_types"]
    table = generation.tables["event_types"]
    ended = begin(engine, PLAN, lambda _: False)
    create(engine, generation)
    lost = CopySink(database(engine), ended.id, 7)

    after = begin(engine, PLAN, lambda _: False)
    create(engine, generation)
    lost.write(target, ROWS, 100)
    with pytest.raises(Conflict, match="is no longer running"):
        lost.close({"event_types": 3})

    sink = CopySink(database(engine), after.id, 7)
    sink.write(target, ROWS, 100)
    sink.close({"event_types": 3})
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(table)) == 3
        assert connection.scalars(select(REBUILD_TASKS.c.rebuild)).all() == [after.id]


@pytest.mark.parametrize("url", [pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True)
def test_a_task_that_is_repeated_adds_nothing_if_it_was_done(url, engine):
    """Its executor died after the commit, or before it."""
    generation = Generation(WORKING)
    rebuild = begin(engine, PLAN, lambda _: False).id
    create(engine, generation)
    (target,) = [each for each in targets(engine, generation) if each.name == "event_types"]
    lost = CopySink(database(engine), rebuild, 7)
    lost.write(target, ROWS, 100)
    lost._connection.close()
    for _ in range(2):
        sink = CopySink(database(engine), rebuild, 7)
        sink.write(target, ROWS, 100)
        sink.close({"event_types": 3})
    with engine.connect() as connection:
        assert [tuple(row) for row in connection.execute(select(generation.tables["event_types"]))] == ROWS
        assert connection.execute(select(REBUILD_TASKS)).all() == [(rebuild, 7, 1, '{"event_types":3}')]
