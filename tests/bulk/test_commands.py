"""The commands that need Spark, from the command line to their exit codes."""

import contextlib
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from rioni.bootstrap.infrastructure import build_infrastructure
from rioni.bootstrap.startup import prepare_startup
from rioni.config.settings import Config
from tests.support.commands import run_command


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark")]


@pytest.fixture
def run(monkeypatch, capsys):
    return partial(run_command, monkeypatch, capsys)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A data directory with one entry in its log: the default storage."""
    config = Config(data=tmp_path / "data")
    with prepare_startup(config) as directory:
        build_infrastructure(config, directory).close()
    return str(config.data)


def test_a_dry_rebuild_finds_differences_and_a_rebuild_repairs_them(run, data):
    with contextlib.closing(sqlite3.connect(f"{data}/registry.db")) as connection, connection:
        assert connection.execute("UPDATE audit_log SET actor = 'bob'").rowcount == 1
    code, out, _ = run("rebuild", "--dry-run", "--data", data)
    assert code == 1
    assert out.splitlines()[0] == "audit_log, 1: changed"
    code, out, _ = run("rebuild", "--data", data)
    assert code == 0
    assert out.endswith(": 1 differences, the new read models are live\n")
    code, out, _ = run("rebuild", "--dry-run", "--data", data)
    assert code == 0
    assert out.endswith(" 0 differences\n")


def test_the_audit_trail_is_exported_to_parquet_with_the_end_of_the_log(run, data, tmp_path):
    folder = tmp_path / "audit"
    code, out, _ = run("audit", "--data", data, "--format", "parquet", "--output", str(folder))
    assert code == 0
    assert out.startswith(f"1 entries written to {folder}; the log ends at 1 with ")
    assert list(folder.glob("day=*/*.parquet"))
