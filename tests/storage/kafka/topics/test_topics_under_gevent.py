import subprocess
import sys
from pathlib import Path

import pytest

from rioni.storage.kafka.client import KafkaConnection
from tests.storage.log_writer import ROOT


pytestmark = pytest.mark.kafka


@pytest.mark.slow
def test_threads_that_change_topics_never_block_queries_for_bounds_for_ever(
    connection: KafkaConnection, tmp_path: Path
):
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.kafka.gevent_topics", connection.bootstrap_servers, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "all is well" in done.stdout, done.stdout + done.stderr
