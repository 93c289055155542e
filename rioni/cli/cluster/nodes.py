"""Starts nodes of Rioni itself, beside the servers that they share, each as a process of its own."""

import contextlib
import http.client
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from rioni.cli.cluster.servers import HOST, Server


READY_TIMEOUT_S = 5


def node(folder: Path, number: int, port: int, environment: Mapping[str, str]) -> Server:
    """A node with one worker, which keeps its port when it is started again.

    Args:
        folder: empty, or from an earlier run.
        number: of this node.
        port: where it listens.
        environment: says what it shares with others, and other settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--host", HOST, "--port", str(port), "--data", str(folder / "data"), "--workers", "1"]
    command = [sys.executable, "-m", "rioni", "serve", *options]
    return Server(f"Node {number}", command, folder, lambda: _is_ready(port), environment)


def _is_ready(port: int) -> bool:
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=READY_TIMEOUT_S)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
