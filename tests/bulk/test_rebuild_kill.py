"""Rebuilds lose a process at random moments: the live read models stay as they are, and the next one goes on.

The environment variable SEED sets the moments.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest
from sqlalchemy import inspect

from rioni.projections.generations.rebuilds import DONE, RUNNING, newest
from rioni.sql.engines import snapshot
from tests.bulk.test_rebuild import contents, history, run
from tests.support.campaigns import length
from tests.support.descendants import descendants, kill_all
from tests.support.spark_processes import spark_processes
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(7_200)]

KILLS = length(5, 60)
DELAY_MAX_S = 6
"""About as long as a rebuild of the log below takes, once Spark has started."""
ENTRIES, ENTRIES_MORE, ENTRIES_PER_TASK = 2_000, 20, 50
VICTIMS = ("driver", "java", "executor", "python", "everything")
CLUSTER = "local-cluster[2,1,512]"
"""A driver in one process, and two executors in others."""
SPARK = os.environ | {"SPARK_HOME": pyspark.__path__[0], "SPARK_SCALA_VERSION": "2.13"}
END_S = 200


def victims(driver: int, victim: str) -> Sequence[int]:
    parts = spark_processes(driver)
    parts |= {"executor": parts["executor"][:1], "driver": [driver], "everything": [driver, *descendants(driver)]}
    return parts[victim]


def rebuild_and_kill(url: str, scratch: Path, victim: str, delay_s: float) -> int:
    """Rebuild in processes of which some are killed so long after the first task has begun; return the exit code."""
    command = [sys.executable, "-m", "tests.bulk.rebuild_process", url, str(scratch), "--master", CLUSTER]
    command += ["--entries-per-task", str(ENTRIES_PER_TASK)]
    with (scratch.parent / "rebuild.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=SPARK, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or victims(process.pid, "python"))
        time.sleep(delay_s)
        kill_all(victims(process.pid, victim))
        return process.wait(END_S)
    finally:
        if process.poll() is None:
            kill_all(victims(process.pid, "everything"))
            process.wait()


def test_killed_at_random_moments_nothing_is_lost_or_doubled(url, engine, write, spark, tmp_path):
    chance, log = random.Random(os.environ.get("SEED", "1")), list(history(ENTRIES + KILLS * ENTRIES_MORE))
    scratch, ends = tmp_path / "rebuild", Counter()
    write(log[:ENTRIES])
    tables = inspect(engine).get_table_names()
    for kill in range(KILLS):
        live, victim = contents(engine), VICTIMS[kill % len(VICTIMS)]
        code = rebuild_and_kill(url, scratch, victim, chance.uniform(0, DELAY_MAX_S))
        said = (tmp_path / "rebuild.log").read_text()
        assert contents(engine) == live, victim
        with snapshot(engine) as connection:
            state = newest(connection)[0].state
        ends[victim, code, state] += 1
        if victim in {"executor", "python"}:
            assert (code, state) == (0, DONE), said
        else:
            assert code != 0 or state == DONE, said
        write(log[ENTRIES + kill * ENTRIES_MORE :][:ENTRIES_MORE])
    live = contents(engine)
    report = run(url, scratch)
    sys.stdout.write(f"{ends}\n")
    assert report.differences == 0
    assert contents(engine) == live
    assert sorted(inspect(engine).get_table_names()) == sorted(tables)
    assert not list(scratch.glob("rebuild-*"))
    with snapshot(engine) as connection:
        assert RUNNING not in [each.state for each in newest(connection)]
