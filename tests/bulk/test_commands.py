"""The commands that need Spark, from the command line to their exit codes."""

import contextlib
import json
import sqlite3
from functools import partial
from pathlib import Path

import pytest
from pyarrow import parquet

from rioni.config.settings import Config
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup
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


def test_read_models_are_built_beside_the_live_ones_and_promoted(run, data):
    code, out, _ = run("rebuild", "--into", "green", "--to", "1", "--only", "storages,audit-log", "--data", data)
    assert (code, out.endswith(": 0 differences, the new read models are in green\n")) == (0, True)
    code, out, _ = run("projections", "list", "--json", "--data", data)
    live, green = map(json.loads, out.splitlines())
    assert (live["name"], live["position"], live["created_at"]) == ("live", 1, None)
    assert (green["name"], green["position"], set(green["tables"])) == ("green", 1, {"audit_log", "states", "storages"})
    assert run("projections", "promote", "green", "--data", data)[0] == 0
    code, out, _ = run("projections", "list", "--data", data)
    assert [line.split()[0] for line in out.splitlines()] == ["name", "live", "previous"]
    assert run("projections", "rollback", "--data", data)[0] == 0
    assert run("projections", "drop", "previous", "--data", data)[:2] == (0, "previous is removed.\n")
    code, _, err = run("projections", "drop", "previous", "--data", data)
    said = "Error: There are no read models named previous; `rioni projections list` shows those that there are.\n"
    assert (code, err) == (2, said)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_differences_are_written_row_by_row(run, data, tmp_path, form):
    with contextlib.closing(sqlite3.connect(f"{data}/registry.db")) as connection, connection:
        assert connection.execute("UPDATE audit_log SET actor = 'bob'").rowcount == 1
    file = tmp_path / "differences"
    code, out, _ = run("rebuild", "--dry-run", "--data", data, "--format", form, "--output", str(file))
    assert (code, out.endswith(": 1 differences\n")) == (1, True)
    if form == "jsonl":
        found = json.loads(file.read_text())
    else:
        (found,) = parquet.read_table(file).to_pylist()
        found |= {name: json.loads(found[name]) for name in ("key", "live", "rebuilt")}
    row = {"table": "audit_log", "key": [1], "kind": "changed"}
    assert found == row | {"live": {"actor": "bob"}, "rebuilt": {"actor": "rioni"}}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--to", "1"], "--to needs --into NAME"),
        (["--from-checkpoint"], "--into NAME"),
        (["--from-checkpoint", "--into", "green", "--only", "states"], "no --only, no --to"),
        (["--dry-run", "--into", "green"], "name one of them"),
        (["--into", "live"], "can't be the name"),
        (["--only", "everything"], "There is no read model 'everything'"),
        (["--format", "parquet"], "Parquet needs a file"),
        (["--conf", "spark.executor.memory"], "is not a setting of Spark"),
        (["--to", "yesterday"], "yesterday is not a time"),
    ],
)
def test_orders_that_make_no_sense_are_refused(run, data, options, why):
    code, _, err = run("rebuild", "--data", data, *options)
    assert (code, why in " ".join(err.replace("│", "").split())) == (2, True), err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--master", "local[3]"], "with spark.master=local[*,4], not local[3]"),
        (["--conf", "spark.executor.memory=3g"], "with spark.executor.memory=None, not 3g"),
        (["--master", "spark://127.0.0.1:1"], "No Spark server answers at spark://127.0.0.1:1"),
    ],
)
@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_a_running_session_is_not_taken_for_one_that_is_elsewhere(run, data, more, options, why):
    code, out, err = run("rebuild", *more, *options, "--data", data)
    assert (code, out, why in err) == (2, "", True), err
