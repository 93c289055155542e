"""Clients of the Nakadi API that have to be installed or compiled first: the examples of docs/clients."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import output, unconsumed_events


pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1_800)]

HERE = Path(__file__).parent
COLOUR = re.compile(r"\x1b\[\d+m")


@pytest.fixture(scope="module")
def clin_command(tmp_path_factory):
    """The command `clin`, installed in a separate environment, as it needs an old version of a package."""
    environment = tmp_path_factory.mktemp("clin") / "venv"
    output(sys.executable, "-m", "venv", environment)
    output(environment / "bin" / "pip", "install", "--quiet", "--requirement", HERE / "clin" / "requirements.txt")
    return environment / "bin" / "clin"


@pytest.fixture
def clin(clin_command, server, tmp_path):
    """Runs clin in a copy of the example's folder, for the server of the tests, and returns what it prints."""
    folder = tmp_path / "clin"
    shutil.copytree(HERE / "clin", folder)
    settings = (folder / ".clin").read_text()
    (folder / ".clin").write_text(settings.replace("http://localhost:8080", server.url))
    return lambda *arguments: COLOUR.sub("", output(clin_command, *arguments, cwd=folder))


def test_clin_creates_prints_and_changes_event_types_and_subscriptions(clin, client, tmp_path):
    assert clin("process", "process.yaml").count("Will create: ") == 2
    assert client.get("/event-types/order.paid").status_code == 404
    assert clin("process", "--execute", "process.yaml").count("Created: ") == 2
    assert clin("process", "--execute", "process.yaml").count("Up to date: ") == 2
    printed = clin("dump", "--env", "local", "--include-envelope", "order.paid")
    assert "kind: event-type" in printed
    assert "owningApplication: shop" in printed

    manifests = tmp_path / "clin" / "manifests"
    _replace(manifests / "event-type.yaml", "retentionTimeDays: 2", "retentionTimeDays: 3")
    _replace(
        manifests / "event-type.yaml", "order: {type: string}", "order: {type: string}\n        by: {type: string}"
    )
    _replace(manifests / "subscription.yaml", "readers: [warehouse]", "readers: [warehouse, audit]")
    assert clin("process", "--execute", "process.yaml").count("Updated: ") == 2
    assert clin("process", "--execute", "process.yaml").count("Up to date: ") == 2
    event_type = client.get("/event-types/order.paid").json()
    assert event_type["options"]["retention_time"] == 3 * 24 * 3_600_000
    assert event_type["schema"]["version"] == "1.1.0"
    (subscription,) = client.get("/subscriptions", params={"event_type": "order.paid"}).json()["items"]
    assert len(subscription["authorization"]["readers"]) == 2

    # Its updates leave out the number of partitions, so it finds the same change each time.
    _replace(manifests / "event-type.yaml", "partitionCount: 2", "partitionCount: 3")
    assert clin("process", "--execute", "process.yaml").count("Updated: ") == 1
    assert clin("process", "--execute", "process.yaml").count("Updated: ") == 1
    assert len(client.get("/event-types/order.paid/partitions").json()) == 2


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_nakadion_creates_publishes_and_consumes(server, client, tmp_path):
    project = tmp_path / "nakadion"
    shutil.copytree(HERE / "nakadion", project)
    environment = os.environ | {"CARGO_TERM_COLOR": "never"}
    output("cargo", "build", "--quiet", cwd=project, env=environment, timeout=1_500)
    printed = output(project / "target" / "debug" / "nakadion-example", server.url)
    lines = [line for line in printed.splitlines() if not line.startswith("[")]  # lines of the log
    assert lines[:5] == [
        "again: Some(409)",
        'listed: true, schema: {"properties":{"order":{"type":"string"}},"required":["order"]}',
        "Aborted: ",
        "Failed: #: required key [order] not found",
        "partitions: 2",
    ]
    received = [re.fullmatch(r"event \d: order (\d) from partition [01]", line)[1] for line in lines[5:-1]]
    assert sorted(received) == ["1", "2", "3", "4"]
    assert lines[-1] == "all events are committed"
    assert unconsumed_events(client, "order.returned") == 0
