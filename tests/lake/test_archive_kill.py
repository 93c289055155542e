"""An archive that is killed at any step and started again has lost nothing and doubled nothing.

The environment variable SEED sets the moments of those that are killed at random.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.lake.archive_and_die import KILLED
from tests.support.campaigns import length
from tests.support.lake import PROPERTIES, change_schema, create_orders, publish_orders, schema_of, stored


pytestmark = pytest.mark.slow
STEPS_MAX = 40
ARCHIVES = length(1, 20)
ROUNDS = length(6, 12)
"""Runs of each archive, most of which are killed."""
WITH_ADDRESS = PROPERTIES | {"address": {"properties": {"city": {}}}}
ADDRESSES = [{"city": "Riga"}, "none", {"city": "Oslo"}]


@pytest.fixture(scope="module")
def archive_and_die() -> Iterator[Callable[..., int]]:
    """Archives in a process that dies before its n-th step, and returns its exit code."""
    command = [sys.executable, "-m", "tests.lake.archive_and_die"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def run(**options: object) -> int:
            process.stdin.write(json.dumps(options) + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


def test_killed_before_each_write_nothing_is_lost_or_doubled(client, lake, archive_and_die):
    """Each process continues where the previous one died, and gets a step further, until one reaches the end."""
    name = create_orders(client, schema=schema_of(WITH_ADDRESS))
    to = {"url": lake.url, "to": lake.to, "format_": lake.format}
    kills = 0
    for _ in ("tables are made", "tables are there"):
        steps, code = 0, KILLED
        while code == KILLED:
            publish_orders(client, name, *({"order": f"o{n}", "address": ADDRESSES[n % 3]} for n in range(10)))
            code = archive_and_die(to=to, name=name, steps=steps)
            assert code in {0, KILLED}
            kills += code == KILLED
            steps += 1
            assert steps < STEPS_MAX
            archived = lake.archived(name)
            assert len(archived) == len(set(archived)), f"doubled after step {steps}"
    assert kills >= 4
    assert archived == stored(client, name)
    assert lake.table(name, "quarantine").num_rows > 0


@pytest.mark.nightly
def test_killed_at_random_moments_nothing_is_lost_or_doubled(client, lake, archive_and_die):
    chance = random.Random(os.environ.get("SEED", "1"))
    to = {"url": lake.url, "to": lake.to, "format_": lake.format}
    seconds, kills = 0.1, 0
    for _ in range(ARCHIVES):
        name, properties = create_orders(client, schema=schema_of(WITH_ADDRESS)), dict(WITH_ADDRESS)
        for number in range(ROUNDS):
            publish_orders(client, name, *({"order": f"o{n}", "address": ADDRESSES[n % 3]} for n in range(10)))
            if number % 3 == 2:
                properties[f"added_{number}"] = {"type": "string"}
                change_schema(client, name, properties)
            limits, begun_s = {"events": chance.choice((4, 100))}, time.perf_counter()
            code = archive_and_die(to=to, name=name, limits=limits, seconds=chance.uniform(0.001, seconds))
            assert code in {0, KILLED}
            kills += code == KILLED
            # Half of the time that a round takes, or more.
            seconds = max(0.02, time.perf_counter() - begun_s) if code == 0 else seconds * 1.5
            archived = lake.archived(name)
            assert len(archived) == len(set(archived)), f"doubled after {kills} kills"
        assert archive_and_die(to=to, name=name) == 0
        assert lake.archived(name) == stored(client, name)
    sys.stdout.write(f"{kills} kills\n")
    assert kills > 0
