"""An archive that is killed at any step and started again has lost nothing and doubled nothing."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.lake.archive_and_die import KILLED
from tests.support.lake import PROPERTIES, create_orders, publish_orders, schema_of, stored


pytestmark = pytest.mark.slow
STEPS_MAX = 40
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
    """Each process goes on where the one before died, and gets a step further, until one comes to the end."""
    name = create_orders(client, schema=schema_of(PROPERTIES | {"address": {"properties": {"city": {}}}}))
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
