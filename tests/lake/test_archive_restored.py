"""Readers that keep offsets say so when the broker was restored to less, and do not wait or begin again in silence."""

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest

from rioni.client import Client, ClientError, Cursor, Subscription
from rioni.domain.errors import Conflict, RioniError
from rioni.spark.options import parse_options
from rioni.spark.source import EventBatchReader, table_schema
from rioni.spark.stream_reader import EventStreamReader
from tests.support.commands import run_command
from tests.support.lake import FORMATS, ArchiveUnderTest, create_orders, publish_orders
from tests.support.server import Stream, running_server
from tests.support.waiting import WAIT_S, wait_until


KEPT, END = "001-0001-000000000000000009", "001-0001-000000000000000004"
"""The place up to which readers have read ten events, and that of the last of the five in the backup."""


def reader_of(url: str, name: str) -> EventStreamReader:
    options = parse_options({"url": url, "event_type": name})
    return EventStreamReader(options, table_schema(options, [name]))


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    """A broker that has lost the last five of ten events, all of which were read; and what readers have kept."""
    folder = tmp_path_factory.mktemp("restored")
    data, backup = folder / "data", folder / "backup"
    found = SimpleNamespace(folder=folder)
    with running_server(data) as server, server.client() as client:
        found.name = create_orders(client, partition_strategy="random", default_statistic=None)
        found.target = create_orders(client, partition_strategy="random", default_statistic=None)
        publish_orders(client, found.name, *({"order": "a", "amount": number} for number in range(5)))
    shutil.copytree(data, backup)
    with running_server(data) as server, server.client() as client:
        publish_orders(client, found.name, *({"order": "a", "amount": number} for number in range(5, 10)))
        for format_ in FORMATS:
            ArchiveUnderTest(url=server.url, to=str(folder / format_), format_=format_).archive(found.name)
        reader = reader_of(server.url, found.name)
        found.checkpoint = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), None)))
        assert found.checkpoint[found.name]["0"] == KEPT
        found.state = folder / "copy.state"
        environment = {**os.environ, "RIONI_URL": server.url}
        subprocess.run([sys.executable, "-m", "rioni", *copying(found)], env=environment, check=True, timeout=120)
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    with running_server(data) as server:
        found.url = server.url
        yield found


def copying(found: SimpleNamespace) -> list[str]:
    return ["copy", found.name, found.target, "--state", str(found.state)]


def refuses(refused: type[Exception], action: Callable[[], object]) -> str:
    with pytest.raises(refused) as caught:
        action()
    return str(caught.value)


@pytest.fixture
def client(restored):
    with Client(restored.url) as opened:
        yield opened


@pytest.mark.parametrize("options", [{}, {"stream_limit": 1, "stream_timeout": 1}])
def test_low_level_streams(restored, client, options):
    cursor = Cursor(partition="0", offset=KEPT)
    said = refuses(ClientError, lambda: next(client.events(restored.name, cursors=[cursor], **options)))
    assert "412" in said
    assert f"offset 9 for partition 0 event type {restored.name}" in said
    assert f"ends before that, at {END}: was the broker restored from a backup" in said


def test_initial_cursors_and_resets_of_subscriptions(restored, client):
    kept = Cursor(event_type=restored.name, partition="0", offset=KEPT)
    body = Subscription(owning_application="shop", event_types=[restored.name], read_from="cursors")
    body.initial_cursors = [kept]
    assert f"at {END}: was the broker restored" in refuses(ClientError, lambda: client.subscriptions.create(body))
    made = client.subscriptions.create(Subscription(owning_application="app", event_types=[restored.name]))
    assert f"at {END}: was the broker restored" in refuses(
        ClientError, lambda: client.subscriptions.reset(made.id, [kept])
    )


def test_subscriptions_whose_cursors_are_behind_the_end(restored, client, caplog):
    """Restoring only the events would have this result; here a client has committed ahead."""
    subscription = client.subscriptions.create(
        Subscription(owning_application="ahead", event_types=[restored.name], read_from="begin")
    )
    with httpx.Client(base_url=restored.url, timeout=WAIT_S) as http:
        path = f"/subscriptions/{subscription.id}"
        with http.stream("GET", f"{path}/events", params={"batch_flush_timeout": 1}) as stream:
            Stream(stream).line()
            ahead = {"items": [{"event_type": restored.name, "partition": "0", "offset": KEPT, "cursor_token": ""}]}
            headers = {"X-Nakadi-StreamId": stream.headers["X-Nakadi-StreamId"]}
            assert http.post(f"{path}/cursors", json=ahead, headers=headers).status_code in (200, 204)
    stop = threading.Event()

    def said() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

    with client.subscription(subscription.id) as consumer:
        reading = threading.Thread(target=lambda: [stop.set() for _ in consumer], daemon=True)
        reading.start()
        wait_until(lambda: len([each for each in said() if KEPT in each]) > 1)
    reading.join(WAIT_S)
    (why, *_) = [each for each in said() if KEPT in each]
    assert f"partition 0, is beyond the last event, {END}. Reset the cursors of the subscription" in why
    assert not stop.is_set()


@pytest.mark.parametrize("format_", FORMATS)
def test_archives(restored, format_):
    lake = ArchiveUnderTest(url=restored.url, to=str(restored.folder / format_), format_=format_)
    said = refuses(RioniError, lambda: lake.archive(restored.name))
    assert f"ends at {KEPT} of partition 0, the broker at {END}" in said
    assert "Archive to another place" in said
    assert lake.table(restored.name).num_rows == 10


def test_copies(restored, monkeypatch, capsys):
    monkeypatch.setenv("RIONI_URL", restored.url)
    before = restored.state.read_bytes()
    code, _, err = run_command(monkeypatch, capsys, *copying(restored))
    said = " ".join(err.split())
    assert code == 2
    assert f"stands at {KEPT} of partition 0 of {restored.name}, which ends at {END}" in said
    assert "Begin a new copy, with another file of state" in said
    assert json.loads(restored.state.read_bytes())["partitions"] == json.loads(before)["partitions"]


@pytest.mark.parametrize("command", [["tail"], ["tail", "--no-follow"], ["search"]])
def test_commands(restored, monkeypatch, capsys, command):
    monkeypatch.setenv("RIONI_URL", restored.url)
    word, *options = command
    code, _, err = run_command(monkeypatch, capsys, word, restored.name, *options, "--from-offset", KEPT)
    assert code == 2
    assert f"{KEPT} lies behind the end of partition 0 of {restored.name}, which is {END}" in " ".join(err.split())


def test_checkpoints_of_spark(restored):
    reader = reader_of(restored.url, restored.name)
    said = refuses(Conflict, lambda: reader.latestOffset(restored.checkpoint, reader.getDefaultReadLimit()))
    assert f"stands at {KEPT} of partition 0, which ends at {END}" in said
    assert "Begin anew" in said


def test_reads_of_spark_from_an_offset(restored):
    options = parse_options({"url": restored.url, "event_type": restored.name, "from": json.dumps({"0": KEPT})})
    reader = EventBatchReader(options, table_schema(options, [restored.name]))
    assert f"which ends at {END}" in refuses(Conflict, reader.partitions)
