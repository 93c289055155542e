"""A publishing process is killed at random moments: exactly the acknowledged events must be stored.

Batches with an idempotency key are then repeated: they must be stored once.
"""

import random
import subprocess
import threading
from pathlib import Path

import pytest

from rioni.storage.embedded.data_directory import DataDirectory
from tests.storage.embedded import publisher
from tests.support.campaigns import length


PUBLISHERS = 6
KILLS = length(6, 500)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300 + 10 * KILLS)
def test_acknowledged_events_survive_a_kill_at_any_moment(tmp_path: Path):
    chance = random.Random()  # every run uses other moments
    starts = [0] * publisher.PARTITIONS
    with DataDirectory(tmp_path / "data") as directory:
        for kill in range(KILLS):
            run = f"run-{kill}"
            acknowledged = publish_until_killed(directory.path, run, chance.randint(0, 300), chance.random() / 200)
            store, signals = publisher.open_store(directory.path)
            store.create_topic(publisher.TOPIC, publisher.PARTITIONS)
            acknowledged += publisher.send_again(store, run, PUBLISHERS, acknowledged)
            starts = publisher.check(store, starts, acknowledged)
            assert store.verify() == []
            store.close()
            signals.close()
    assert sum(starts) > KILLS


def publish_until_killed(path: Path, run: str, lines: int, more_s: float) -> list[publisher.Acknowledged]:
    """Kill a publishing process some time after it has printed `lines` lines, and return its output."""
    command = publisher.command(path, run, PUBLISHERS, 0)
    with subprocess.Popen(command, cwd=publisher.ROOT, stdout=subprocess.PIPE, text=True) as process:
        first = [process.stdout.readline() for _ in range(lines)]
        # The moment is random; nothing is waited for here.
        threading.Event().wait(more_s)
        process.kill()
        return publisher.parse([*first, *process.stdout.read().splitlines()])
