import subprocess
import sys

import pytest

from rioni.storage.embedded.data_directory import DataDirectory
from tests.storage.embedded import publisher


@pytest.mark.slow
def test_the_hub_keeps_running_while_greenlets_wait_for_the_disk(directory: DataDirectory):
    command = [sys.executable, "-X", "dev", "-m", "tests.storage.embedded.gevent_publisher", str(directory.path)]
    done = subprocess.run(command, cwd=publisher.ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "all is well\n", done.stderr
    assert "ResourceWarning" not in done.stderr
