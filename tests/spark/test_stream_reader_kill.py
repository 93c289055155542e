"""A streaming query whose processes are killed with SIGKILL goes on as if nothing had happened."""

import signal
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from tests.support.lake import create_orders, publish_orders


pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.nightly]

EVENTS = 90


def test_killed_before_and_after_rows_are_stored_nothing_is_lost_or_doubled(server, client, tmp_path):
    name = create_orders(client)
    publish_orders(client, name, *({"order": str(number), "amount": number} for number in range(EVENTS)))
    codes = []
    for dies in ("before:0", "after:0", "before:1", "after:2", "never"):
        command = [sys.executable, "-m", "tests.spark.stream_and_die", server.url, name, str(tmp_path), dies]
        codes.append(subprocess.run(command, start_new_session=True, timeout=200, check=False).returncode)
    assert codes == [*[-signal.SIGKILL] * 4, 0]
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(rows["amount"].to_pylist()) == list(range(EVENTS))
    assert len(set(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))) == EVENTS
