"""`rioni archive` as a process: once, and as a service that ends with its commit."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid

import pytest
import typer

from rioni.cli.broker.archive import _check_lost, _show
from rioni.cli.terminal.output import Output
from rioni.lake.event_type_archive import RoundResult
from tests.support.lake import ArchiveUnderTest, create_orders, publish_orders
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("data"), "--workers", "1") as running:
        yield running


def command(server, folder, *options):
    return [sys.executable, "-m", "rioni", "archive", "--url", server.url, "--to", str(folder), *options]


def test_once_it_archives_what_is_there_and_names_what_failed(server, tmp_path):
    with server.client() as client:
        name = create_orders(client)
        publish_orders(client, name, {"order": "a"}, {"order": "b"})
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    options = ["--once", "--format", "delta", "--event-type", missing, "--event-type", name]
    done = subprocess.run(
        command(server, tmp_path, *options), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 2, done.stderr
    assert f"{name}: 2 events archived" in done.stdout
    assert missing in done.stderr
    with server.client() as client:
        failed = next(each for each in client.get("/jobs").json()["items"] if each["name"] == str(tmp_path))
    assert (failed["state"], failed["phase"], failed["done"], failed["total"]) == ("failed", "event types", 1, 2)
    assert missing in failed["detail"]
    assert "Traceback" not in done.stderr


def test_what_fails_before_it_begins_is_no_job(server, tmp_path):
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    options = ["--once", "--event-type", missing]
    done = subprocess.run(
        command(server, tmp_path, *options), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, missing in done.stderr) == (2, True), done.stderr
    with server.client() as client:
        assert not [each for each in client.get("/jobs").json()["items"] if each["name"] == str(tmp_path)]


def test_a_loss_is_an_exit_code_of_its_own(capsys):
    done = {"a": RoundResult(archived=2, quarantined=1), "b": RoundResult(lost=3)}
    _show(Output(), done)
    with pytest.raises(typer.Exit) as ended:
        _check_lost(done)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out == (
        "a: 2 events archived, 1 in quarantine\nb: 0 events archived, 3 LOST to retention before\n"
    )


def test_a_service_archives_what_comes_until_it_is_told_to_end(server, tmp_path):
    with server.client() as client:
        name = create_orders(client)
        publish_orders(client, name, {"order": "a"})
        options = ["--event-type", name, "--every", "1", "--metrics-port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command(server, tmp_path, *options), stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            url = re.search(r"http://\S+", process.stdout.readline())[0]

            def archived() -> str:
                return urllib.request.urlopen(url).read().decode()

            wait_until(lambda: f'rioni_archive_events_total{{event_type="{name}"}} 1.0' in archived())
            publish_orders(client, name, {"order": "b"})
            wait_until(lambda: f'rioni_archive_events_total{{event_type="{name}"}} 2.0' in archived())
            assert f'rioni_archive_retention_seconds{{event_type="{name}"}}' in archived()

            def running():
                (job,) = (each for each in client.get("/jobs").json()["items"] if each["state"] == "running")
                return job

            job = wait_until(lambda: (job := running())["phase"] == "wait for new events" and job)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        (ended,) = (each for each in client.get("/jobs").json()["items"] if each["id"] == job["id"])
        assert (job["phase"], job["done"], job["total"]) == ("wait for new events", 1, 1)
        assert (ended["state"], ended["detail"]) == ("done", "2 events archived")
    table = ArchiveUnderTest(url=server.url, to=str(tmp_path), format_="delta").table(name)
    assert sorted(table["order"].to_pylist()) == ["a", "b"]
