import pytest
from sqlalchemy import insert, select

from rioni.domain.errors import NotFound
from rioni.projections.generations.rebuilds import (
    DONE,
    INTERRUPTED,
    KEPT_MAX,
    RUNNING,
    RebuildPlan,
    begin,
    find,
    newest,
    running,
)
from rioni.sql.engines import snapshot, writing
from rioni.sql.log_tables import REBUILD_TASKS


PLAN = RebuildPlan("new", ["states"], incremental=False, fold=1, upto=None, position=7, hash="00" * 32, tasks=2)
LATER = RebuildPlan("new", ["states"], incremental=False, fold=1, upto=None, position=9, hash="11" * 32, tasks=4)
OTHER = RebuildPlan("green", ["states"], incremental=False, fold=1, upto=None, position=7, hash="00" * 32, tasks=2)


def note_task(engine, rebuild: str) -> None:
    with writing(engine) as connection:
        connection.execute(insert(REBUILD_TASKS).values(rebuild=rebuild, task=1, batches=2, rows='{"states":3}'))


def test_an_interrupted_rebuild_is_resumed_as_it_was_planned(engine):
    first = begin(engine, PLAN, lambda _: True)
    note_task(engine, first.id)
    again = begin(engine, LATER, lambda _: True)
    assert (again.id, again.resumed, again.plan) == (first.id, True, PLAN)
    assert again.tasks() == {1: {"states": 3}}


@pytest.mark.parametrize(("plan", "usable"), [(LATER, False), (OTHER, True)])
def test_what_can_not_be_resumed_is_forgotten_but_for_its_record(engine, plan, usable):
    first = begin(engine, PLAN, lambda _: True)
    note_task(engine, first.id)
    other = begin(engine, plan, lambda _: usable)
    assert (other.resumed, other.plan) == (False, plan)
    with snapshot(engine) as connection:
        assert find(connection, first.id).state == INTERRUPTED
        assert running(connection).id == other.id
        assert connection.execute(select(REBUILD_TASKS)).all() == []


def test_progress_is_recorded_and_what_is_done_is_no_longer_resumed(engine):
    job = begin(engine, PLAN, lambda _: True)
    job.progress("fold", 3, 7)
    with snapshot(engine) as connection:
        found = find(connection, job.id)
    assert (found.state, found.phase, found.done, found.total) == (RUNNING, "fold", 3, 7)
    note_task(engine, job.id)
    job.finish(DONE, "7 entries")
    with snapshot(engine) as connection:
        assert find(connection, job.id)[3:8] == (DONE, "fold", 3, 7, "7 entries")
        assert running(connection) is None
    assert not begin(engine, PLAN, lambda _: True).resumed
    assert job.tasks() == {}


def test_the_number_of_records_is_bounded(engine):
    for _ in range(KEPT_MAX + 3):
        last = begin(engine, PLAN, lambda _: False)
    with snapshot(engine) as connection:
        found = newest(connection)
        assert KEPT_MAX <= len(found) <= KEPT_MAX + 1
        assert last.id in {each.id for each in found[:2]}
        with pytest.raises(NotFound, match="the last 100 are known"):
            find(connection, "none")
