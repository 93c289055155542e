"""Spark's standalone master with two workers builds the same as this process, byte by byte, whatever dies meanwhile."""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from rioni.projections.custom_tables import live_tables
from tests.bulk.conftest import write_all
from tests.bulk.test_rebuild import history
from tests.support.installing import example_found_in
from tests.support.standalone import Standalone


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

VICTIMS = {"sqlite": "executor", "postgresql": "python"}
"""Starting Spark takes seconds: each database is used for one of them."""


def test_two_workers_build_what_the_live_projection_has_written_though_one_dies(two_workers, url, engine, tmp_path):
    with example_found_in(two_workers.packages):
        write_all(engine, list(history(500)))
        live = everything(engine)
        assert live["custom_owners"]
    options = [url, str(tmp_path / "scratch"), "--master", two_workers.url, "--entries-per-task", "60"]
    done = rebuilt(two_workers, *options, "--kill", VICTIMS[engine.dialect.name])
    assert (done.returncode, done.stdout) == (0, "killed\n"), done.stderr
    with example_found_in(two_workers.packages):
        assert everything(engine) == live
    assert not list(Path(tmp_path / "scratch").glob("rebuild-*"))


def rebuilt(workers: Standalone, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bulk.rebuild_process", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, env=workers.environment)


def everything(engine: Engine) -> dict[str, list[tuple]]:
    """All live tables, in the order of their keys."""
    with engine.connect() as connection:
        return {
            name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for name, table in live_tables().items()
        }
