"""Runs `gevent_worker.py` in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path


def run(hosts: str, directory: Path, pem: str = "") -> None:
    """Let a patched process work as a worker does, and return its results."""
    script = Path(__file__).with_name("gevent_worker.py")
    command = [sys.executable, str(script), hosts, str(directory), pem]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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
