"""A query that is killed with SIGKILL while it publishes, and started again, stores nothing twice."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.lake import PRESENT, create_orders, stored


pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.nightly]

EVENTS = 400


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_killed_while_it_publishes_nothing_is_lost_or_doubled(spark, server, client, tmp_path, kind):
    name = create_orders(client)
    columns = ("cast(id as string) as order", "id as amount", f"named_struct('occurred_at', '{PRESENT}') as metadata")
    spark.range(EVENTS).selectExpr(*columns).repartition(4, "order").write.parquet(str(tmp_path / "rows"))
    codes = []
    for dies_at in (1, 90, 250, 0):
        command = [sys.executable, "-m", "tests.spark.publish_and_die"]
        options = [server.url, name, str(tmp_path), kind, str(dies_at)]
        done = subprocess.run([*command, *options], start_new_session=True, timeout=200, check=False)
        codes.append(done.returncode)
    assert codes == [*[-signal.SIGKILL] * 3, 0]
    assert sorted(json.loads(each)["amount"] for each in stored(client, name)) == list(range(EVENTS))
