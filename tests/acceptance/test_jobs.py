"""`/jobs`: how far archives and backups are (reference jobs)."""

import contextlib
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from tests.acceptance.conftest import problem, publish_orders
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


REPORT = {"kind": "archive", "name": "lake", "state": "running"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data") / "rioni"


@pytest.fixture(scope="module")
def broker(data):
    with running_server(data, "--workers", "2") as server:
        yield server


@pytest.fixture
def client(broker):
    with broker.client() as client:
        yield client


def rioni(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "rioni", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_a_client_reports_a_job(client):
    """Reference jobs#listing-jobs, jobs#reporting-jobs."""
    job = str(uuid4())
    first = client.put(f"/jobs/{job}", json=REPORT).json()
    second = client.put(f"/jobs/{job}", json=REPORT | {"phase": "orders", "done": 3, "total": 7}).json()
    assert client.get("/jobs", params={"kind": "archive"}).json()["items"][0] == second
    assert (first["started_at"], first["client"]) == (second["started_at"], second["client"])
    assert second.pop("started_at") <= second.pop("updated_at")
    second.pop("client")
    assert second == {**REPORT, "id": job, "phase": "orders", "done": 3, "total": 7, "detail": ""}
    assert job not in {each["id"] for each in client.get("/jobs", params={"kind": "backup"}).json()["items"]}
    problem(client.get("/jobs", params={"kind": "rebuild"}), 400)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"kind": "backup"}, 400),
        ({"state": "interrupted"}, 400),
        ({"done": -1}, 400),
        ({"done": "1"}, 400),
        ({"name": ""}, 400),
        ({"detail": "x" * 1_001}, 400),
        ({"kind": None}, 422),
        ({"state": None}, 422),
    ],
)
def test_a_report_that_says_something_else_is_refused(client, change, status):
    """Reference jobs#reporting-jobs."""
    problem(client.put(f"/jobs/{uuid4()}", json=REPORT | change), status)


def test_an_id_is_a_uuid(client):
    problem(client.put("/jobs/one", json=REPORT), 400)


def test_a_backup_is_listed_with_its_end(data, client, tmp_path):
    assert rioni("backup", "--data", str(data), "--to", str(tmp_path / "to"))[0] == 0
    found = client.get("/jobs", params={"kind": "backup"}).json()["items"][0]
    assert (found["state"], found["name"], found["client"]) == ("done", str(tmp_path / "to"), "")
    assert found["phase"] == "checksums"
    assert found["done"] == found["total"] > 0
    assert "bytes" in found["detail"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    assert rioni("backup", "--data", str(data), "--to", str(tmp_path / "other"))[0] != 0
    found = client.get("/jobs", params={"kind": "backup"}).json()["items"][0]
    assert (found["state"], found["name"]) == ("failed", str(tmp_path / "other"))
    assert "neither empty nor a backup" in found["detail"]


def test_a_wrong_folder_gets_no_list_of_jobs(tmp_path):
    (tmp_path / "data").mkdir()
    assert rioni("backup", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "to"))[0] != 0
    assert list((tmp_path / "data").iterdir()) == []


def test_an_archive_is_listed_with_its_end(broker, client, tmp_path):
    body = event_type_body(name="jobs.archived", category="undefined", enrichment_strategies=[])
    client.post("/event-types", json=body).raise_for_status()
    client.post("/event-types/jobs.archived/events", json=[{"order_id": "1"}] * 3).raise_for_status()
    command = ("archive", "--url", broker.url, "--once", "--to", str(tmp_path), "--event-type", "jobs.archived")
    code, said = rioni(*command)
    assert code == 0, said
    found = client.get("/jobs", params={"kind": "archive"}).json()["items"][0]
    assert (found["state"], found["name"], found["detail"]) == ("done", str(tmp_path), "3 events archived")


@pytest.mark.both_modes
def test_every_node_says_how_far_an_archive_is_that_reads_from_one_of_them(server, name, tmp_path):
    """Reference jobs#listing-jobs."""
    nodes = getattr(server, "nodes", [server])
    command = ("archive", "--url", nodes[0].url, "--to", str(tmp_path), "--event-type", name, "--every", "1")
    with nodes[-1].client() as other, contextlib.ExitStack() as stack:
        other.post("/event-types", json=event_type_body(name=name)).raise_for_status()
        process = stack.enter_context(archiving(*command))

        def told(state, detail):
            jobs = other.get("/jobs", params={"kind": "archive"}).json()["items"]
            (found,) = [each for each in jobs if each["name"] == str(tmp_path)] or [{"state": "", "detail": ""}]
            return (found["state"], found["detail"]) == (state, detail) and found

        for count in (1, 2):
            publish_orders(other, name, str(count))
            running = wait_until(lambda count=count: told("running", f"{count} events archived"))
        process.send_signal(signal.SIGTERM)
        ended = wait_until(lambda: told("done", "2 events archived"))
        assert (ended["id"], ended["started_at"]) == (running["id"], running["started_at"])
        assert process.wait(WAIT_S) == 0


@contextlib.contextmanager
def archiving(*arguments):
    """A command that runs until the block ends at the latest."""
    with subprocess.Popen([sys.executable, "-m", "rioni", *arguments]) as process:
        try:
            yield process
        finally:
            process.kill()
