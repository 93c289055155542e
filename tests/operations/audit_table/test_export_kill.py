"""An export whose processes are killed with SIGKILL is completed by the next one."""

import random
import signal
import subprocess
import sys

import pytest

from rioni.operations import verify_export
from rioni.operations.audit_table import export
from tests.operations.audit_table.conftest import rows, shown
from tests.support.campaigns import length


pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(length(600, 3_600))]

KILLS = length(2, 20)
LIFE_MAX_S = 4.0


def test_killed_at_random_moments_each_entry_is_there_once(broker, tmp_path, monkeypatch):
    table, killed = tmp_path / "table", 0
    for number in range(KILLS):
        broker.grow(400)
        # Few kills are spread over the work, too; the first one comes early.
        life_s = LIFE_MAX_S * ((number + random.random()) / KILLS) ** 2
        command = [sys.executable, "-m", "tests.operations.audit_table.export_process"]
        options = [str(broker.config.data), str(table), f"{life_s:.2f}"]
        code = subprocess.run([*command, *options], start_new_session=True, timeout=200, check=False).returncode
        assert code in {0, -signal.SIGKILL}
        killed += code != 0
    assert killed
    monkeypatch.setattr(export, "LEFTOVER_AGE_S", 0)
    broker.export(table)
    assert verify_export.main([str(table), "--key", broker.key]) == 0
    assert [shown(row) for row in rows(table)] == broker.expected()
    manifests, *_ = verify_export.log_of(table)
    assert len([*table.glob("day=*/*")]) == sum(len(each["files"]) for each in manifests)
