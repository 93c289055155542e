"""Live, replayed, and folded by Spark: the same rows for any history, any part of it, and any of the read models."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from rioni.domain.ports.event_log import LogEntry
from rioni.projections.custom import KEY, installed
from rioni.projections.custom_tables import live_tables
from rioni.projections.generations.generation import MODELS, Generation, find, models_named, remove
from rioni.sql.engines import snapshot, writing
from tests.bulk.conftest import write_all
from tests.bulk.test_rebuild import contents, replayed, run, sorted_by_key
from tests.support.campaigns import length
from tests.support.history import entries, histories
from tests.support.installing import example_found_in, install_example
from tests.support.log import clear


pytestmark = [pytest.mark.spark, pytest.mark.timeout(length(300, 7_200))]

OWNERS = "custom_owners"
NAMES = (*MODELS, "owners")


@pytest.fixture
def example(tmp_path: Path, spark, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The projection of the documentation, installed here and where Spark's executors run."""
    folder = tmp_path / "packages"
    folder.mkdir()
    install_example(folder)
    places = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", places)
    with example_found_in(folder):
        yield


def owners(log: Iterable[LogEntry]) -> list[tuple]:
    """The rows of the example by definition."""
    (projection,) = installed()
    rows: dict[str, dict] = {}
    for entry in log:
        if projection.follows(entry):
            key = f"{entry.event.kind}:{entry.event.key}"
            after = projection.next_row(rows.pop(key, None), entry)
            rows |= {} if after is None else {key: after}
    return [(row[KEY], *(row[name] for name in projection.columns)) for row in rows.values()]


def expected(log: list[LogEntry], tables: Iterable[str]) -> dict[str, list[tuple]]:
    everything = {**replayed(log), OWNERS: owners(log)}
    return sorted_by_key({name: everything[name] for name in tables})


def built(engine: Engine, name: str) -> dict[str, list[tuple]]:
    with snapshot(engine) as connection:
        tables = Generation(name, find(connection, name).tables).tables
        found = {live: [tuple(row) for row in connection.execute(select(table))] for live, table in tables.items()}
    return sorted_by_key(found)


@settings(
    max_examples=length(3, 60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    # An example takes seconds.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(commands=histories(40), data=st.data())
def test_live_replay_and_spark_give_the_same_rows(commands, data, url, engine, example, spark, tmp_path):
    log = list(entries(commands))
    assume(len(log) > 1)
    first, moment = (data.draw(st.integers(1, len(log)), label=label) for label in ("first", "moment"))
    only = data.draw(st.sets(st.sampled_from(NAMES), min_size=1), label="only")
    clear(engine)
    with writing(engine) as connection:
        for name in ("nightly", "then"):
            remove(connection, name)

    write_all(engine, log[:first])
    run(url, tmp_path / "scratch", into="nightly", tables=models_named(",".join(sorted(only))))
    write_all(engine, log[first:])
    run(url, tmp_path / "scratch", into="nightly", incremental=True)
    run(url, tmp_path / "scratch", into="then", upto=moment)

    with snapshot(engine) as connection:
        tables = find(connection, "nightly").tables
    assert built(engine, "nightly") == expected(log, tables)
    assert built(engine, "then") == expected(log[:moment], live_tables())
    live = sorted_by_key(contents(engine))
    assert live == expected(log, live)
    assert run(url, tmp_path / "scratch", dry_run=True).differences == 0
