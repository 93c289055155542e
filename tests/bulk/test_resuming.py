"""A rebuild that is killed continues from the point it reached: nothing is lost or duplicated."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rioni.projections.bulk import source
from rioni.projections.generations.rebuilds import DONE, RUNNING, newest
from rioni.sql.engines import snapshot
from tests.bulk.test_rebuild import contents, history, run
from tests.support.descendants import kill_all
from tests.support.spark_processes import spark_processes
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

ENTRIES_PER_TASK = 60


def killed(url: str, scratch: Path, phase: str) -> None:
    """Begin or resume a rebuild that dies in a phase."""
    module = [sys.executable, "-m", "tests.bulk.rebuild_process", url, str(scratch)]
    options = ["--die-in", phase, "--entries-per-task", str(ENTRIES_PER_TASK)]
    done = subprocess.run([*module, *options], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_rebuild_is_resumed(url, engine, write, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "ENTRIES_PER_TASK", ENTRIES_PER_TASK)
    write(history(600))
    live, folded = contents(engine), []
    # Starting Spark takes seconds: each database is used for one of the phases.
    killed(url, tmp_path, "swap" if engine.dialect.name == "sqlite" else "fold")
    assert contents(engine) == live
    with snapshot(engine) as connection:
        (begun,) = newest(connection)
    assert (begun.state, begun.plan.tasks) == (RUNNING, 10)
    write(list(history(620))[600:])
    live = contents(engine)

    report = run(url, tmp_path, progress=lambda phase, *_: folded.append(phase))

    assert (report.id, report.entries, report.differences) == (begun.id, 600, 0)
    assert ("fold" in folded) == (engine.dialect.name != "sqlite")
    assert contents(engine) == live
    with snapshot(engine) as connection:
        assert [each.state for each in newest(connection)] == [DONE]
    assert not list(tmp_path.glob("rebuild-*"))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_rebuild_whose_java_process_was_killed_is_resumed(url, engine, write, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "ENTRIES_PER_TASK", ENTRIES_PER_TASK)
    write(history(3_000))
    live = contents(engine)
    module = [sys.executable, "-m", "tests.bulk.rebuild_process", url, str(tmp_path)]
    options = ["--entries-per-task", str(ENTRIES_PER_TASK)]
    with subprocess.Popen([*module, *options], stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: process.poll() is not None or any(tmp_path.glob("rebuild-*/*.db")))
        assert process.poll() is None, process.communicate()
        kill_all(spark_processes(process.pid)["java"])
        _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "Unavailable: Spark's Java process was ended by signal 9" in said
    assert contents(engine) == live
    with snapshot(engine) as connection:
        (begun,) = newest(connection)
    report = run(url, tmp_path)
    assert (report.id, report.entries, report.differences) == (begun.id, 3_000, 0)
    assert contents(engine) == live
