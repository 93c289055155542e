"""An export whose processes are killed with SIGKILL is completed by the next one."""

import random
import signal
import subprocess
import sys

import pytest

from rioni.operations import verify_export
from rioni.operations.audit_table.manifests import DATA
from tests.operations.audit_table.conftest import shown
from tests.support.campaigns import length


pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(length(600, 3_600))]

KILLS = length(2, 20)
LIFE_MAX_S = 4.0


@pytest.mark.parametrize("form", ["delta", "jsonl"])
def test_killed_at_random_moments_each_entry_is_there_once(broker, tmp_path, form):
    table, killed = tmp_path / "table", 0
    for number in range(KILLS):
        broker.grow(400)
        # Few kills are spread over the work, too; the first one comes early.
        life_s = LIFE_MAX_S * ((number + random.random()) / KILLS) ** 2
        command = [sys.executable, "-m", "tests.operations.audit_table.export_process"]
        options = [str(broker.config.data), str(table), form, f"{life_s:.2f}"]
        code = subprocess.run([*command, *options], start_new_session=True, timeout=200, check=False).returncode
        assert code in {0, -signal.SIGKILL}
        killed += code != 0
    assert killed
    broker.export(table, form)
    assert verify_export.main([str(table), "--key", broker.key]) == 0
    files = [file for each in verify_export.manifests_of(table) for file in each["files"]]
    assert [shown(row) for row in verify_export.rows_of(table, files)] == broker.expected()
    present = [path for path in table.glob("day=*/*") if DATA.fullmatch(path.name)]
    assert len(present) == len(files)
