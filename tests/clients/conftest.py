import subprocess

import pytest

from tests.support.campaigns import NIGHTLY
from tests.support.server import running_server


# Installs and compiles for a minute or more. The usual run starts the clients that need neither.
collect_ignore = [] if NIGHTLY else ["test_nightly_clients.py", "test_nightly_generators.py"]
RUN_TIMEOUT_S = 120


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """One server for all clients, each of which has its own event types."""
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "1") as running:
        yield running


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def output(*command, timeout=RUN_TIMEOUT_S, **options) -> str:
    """Run a program, which must succeed; returns its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unconsumed_events(client, event_type) -> int:
    """The number of events of the only subscription to an event type that are not committed."""
    (subscription,) = client.get("/subscriptions", params={"event_type": event_type}).json()["items"]
    (stats,) = client.get(f"/subscriptions/{subscription['id']}/stats").json()["items"]
    return sum(partition["unconsumed_events"] for partition in stats["partitions"])
