"""An appending process is killed at random moments: log and read models agree, and contain what was committed."""

import random
import subprocess
import threading
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import select

from rioni.domain.aggregates import TOPICS
from rioni.projections.projector import Projector
from rioni.projections.tables import READ_MODELS
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import create_engine, reading, writing
from rioni.storage.sql.migration import upgrade
from tests.storage import projecting_writer
from tests.support.campaigns import length


KILLS = length(5, 300)
SEED = 11


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300 + 10 * KILLS)
def test_log_and_read_models_agree_after_a_kill_at_any_moment(tmp_path: Path):
    chance = random.Random()  # every run uses other moments
    url = f"sqlite:///{tmp_path / 'registry.db'}"
    with closing(open_log(url)) as log:
        for _ in range(KILLS):
            reported = append_until_killed(url, chance.randint(1, 60), chance.random() / 100)
            assert list(verify(log.engine, TOPICS)) == []
            head = log.head().position
            assert head >= reported
            with reading(log.engine) as connection:
                assert Projector().position(connection) == head
        assert head > KILLS
        written = log.entries(0, head)
        assert written == list(islice(projecting_writer.history(SEED), head))
        with closing(open_log(f"sqlite:///{tmp_path / 'again.db'}")) as again:
            with writing(again.engine) as connection:
                Projector().apply(connection, written)
            assert read_models(again) == read_models(log)


def append_until_killed(url: str, lines: int, more_s: float) -> int:
    """Kill an appending process some time after it has printed `lines` lines, and return the last position printed."""
    command = projecting_writer.command(url, SEED)
    with subprocess.Popen(command, cwd=projecting_writer.ROOT, stdout=subprocess.PIPE, text=True) as process:
        reported = list(islice(process.stdout, lines))
        # The moment is random; nothing is waited for here.
        threading.Event().wait(more_s)
        process.kill()
        reported += process.stdout
    return int(reported[-1]) if reported else 0


def open_log(url: str) -> SqlEventLog:
    engine = create_engine(url)
    upgrade(engine)
    return SqlEventLog(engine, TOPICS)


def read_models(log: SqlEventLog) -> dict[str, list[tuple]]:
    with reading(log.engine) as connection:
        tables = READ_MODELS.sorted_tables
        return {table.name: sorted(map(tuple, connection.execute(select(table))), key=repr) for table in tables}
