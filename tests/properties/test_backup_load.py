"""A backup of a server under load, restored elsewhere, lacks nothing that was acknowledged before it began."""

import json
import subprocess
import sys
import threading
import uuid

import httpx
import pytest

from tests.acceptance.conftest import partitions
from tests.properties.test_server_kill import NAME, PARTITIONS, SCHEMA, Publisher, stored
from tests.support.builders import event_type_body
from tests.support.campaigns import length
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.slow, pytest.mark.nightly]

BACKUPS = length(1, 30)
KEYS = ("key-0", "key-1")


class Committer(threading.Thread):
    """Consumes and commits until the server ends."""

    def __init__(self, url: str, subscription: str) -> None:
        super().__init__()
        self.url, self.subscription = url, subscription
        self.committed: dict[str, str] = {}

    def run(self) -> None:
        path = f"/subscriptions/{self.subscription}"
        try:
            with (
                httpx.Client(base_url=self.url, timeout=WAIT_S, verify=False) as client,
                client.stream("GET", f"{path}/events?batch_limit=5&batch_flush_timeout=1") as response,
            ):
                stream_id = response.headers["X-Nakadi-StreamId"]
                for line in response.iter_lines():
                    cursor = json.loads(line)["cursor"]
                    answer = client.post(
                        f"{path}/cursors", json={"items": [cursor]}, headers={"X-Nakadi-StreamId": stream_id}
                    )
                    if answer.status_code in {200, 204}:
                        self.committed[cursor["partition"]] = cursor["offset"]
        except httpx.HTTPError:
            pass


def rioni(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rioni", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_backup_under_load_has_all_that_was_acknowledged_before(tmp_path):
    data, folder = tmp_path / "data", tmp_path / "backup"
    with running_server(data, "--workers", "2") as server, server.client() as client:
        body = event_type_body(
            name=NAME,
            partition_strategy="hash",
            partition_key_fields=["order_id"],
            schema={"type": "json_schema", "schema": SCHEMA},
            **partitions(PARTITIONS),
        )
        assert client.post("/event-types", json=body).status_code == 201
        wanted = {"owning_application": "x", "event_types": [NAME], "read_from": "begin"}
        subscription = client.post("/subscriptions", json=wanted).json()["id"]
        publishers = [Publisher(server.url, key, 0) for key in KEYS]
        committer = Committer(server.url, subscription)
        for thread in (*publishers, committer):
            thread.start()
        for number in range(BACKUPS):
            wait_until(lambda: all(each.acknowledged for each in publishers) and committer.committed)
            assert client.post("/event-types", json=body | {"name": f"other-{uuid.uuid4()}"}).status_code == 201
            before = {each.key: each.acknowledged.copy() for each in publishers}
            committed = committer.committed.copy()
            rioni("backup", "--data", str(data), "--to", str(folder))
            restored = tmp_path / f"restored{number}"
            rioni("restore", "--from", str(folder), "--data", str(restored))
            rioni("verify", "--data", str(restored))
            with running_server(restored) as other, other.client() as reader:
                found = stored(reader)
                cursors = reader.get(f"/subscriptions/{subscription}/cursors").json()["items"]
                assert len(reader.get("/event-types").json()) == 2 + number
            for key in KEYS:
                assert found[key] == sorted(set(found[key])), "an event is there twice or out of order"
                assert set(before[key]) <= set(found[key])
            for cursor in cursors:
                assert cursor["offset"] >= committed.get(cursor["partition"], "")
        server.kill()
    for thread in (*publishers, committer):
        thread.join()
