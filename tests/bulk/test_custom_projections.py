"""The example of the documentation, installed as a package: live in a broker, and built by Spark."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders import event_type_body
from tests.support.installing import install_example
from tests.support.server import running_server


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


def rows(data: Path) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(data / "registry.db")) as connection:
        return connection.execute("SELECT * FROM custom_owners ORDER BY resource").fetchall()


def test_the_example_follows_the_log_and_is_rebuilt(tmp_path):
    data, packages = tmp_path / "data", tmp_path / "packages"
    packages.mkdir()
    install_example(packages)
    environment = {"PYTHONPATH": os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])}
    with running_server(data, environment=environment, program=["-m", "rioni"]) as server, server.client() as client:
        for name in ("order.created", "order.gone"):
            assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
        assert client.put("/event-types/order.created", json=event_type_body(name="order.created") | {"options": {
            "retention_time": 86_400_000
        }}).status_code == 200  # fmt: skip
        assert client.delete("/event-types/order.gone").status_code == 200
        live = [row for row in rows(data) if "order" in row[0]]
    assert [(row[0], row[2]) for row in live] == [("event-type:order.created", 2)]
    everything = rows(data)
    with contextlib.closing(sqlite3.connect(data / "registry.db")) as connection, connection:
        connection.execute("UPDATE custom_owners SET changes = 7 WHERE resource = 'event-type:order.created'")

    command = [sys.executable, "-m", "rioni", "rebuild", "--data", str(data), "--only", "owners", "--format", "jsonl"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=200, env=os.environ | environment
    )

    assert done.returncode == 0, done.stderr
    (found,) = map(json.loads, done.stdout.splitlines())
    assert (found["table"], found["live"], found["rebuilt"]) == ("custom_owners", {"changes": 7}, {"changes": 2})
    assert rows(data) == everything
