"""Runs `gevent_worker.py` in a separate process."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import WAIT_S


ROOT = Path(__file__).parents[3]


def run(hosts: str, directory: Path, pem: str = "") -> None:
    """Let a patched process work as a worker does, and return its results."""
    command = [sys.executable, "-m", "tests.storage.zookeeper.gevent_worker", hosts, str(directory), pem]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "alive": True,
        "seen": True,
        "left": 0,
        "forgotten": True,
        "taken": [[], [], ["a"]],
        "ticked": True,
        "counts": [1_000, 1_000, 0],
    }
