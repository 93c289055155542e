import contextlib
import os
import shutil
import socket
import uuid
from functools import partial
from pathlib import Path

import pytest

from rioni.client import Client
from rioni.config.settings import Config
from rioni.installation.anchoring import StoreMarks
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup
from tests.support.commands import run_command
from tests.support.scripted_server import scripted_server
from tests.support.server import running_server
from tests.support.snapshots import compare


@pytest.fixture(scope="module")
def nowhere():
    """The URL of a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def scripted():
    """A server that answers what a test tells it to."""
    with scripted_server() as server:
        yield server


@pytest.fixture(scope="package")
def broker(tmp_path_factory):
    """A broker for all tests of commands over HTTP, each of which uses its own names."""
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "1") as running:
        yield running


@pytest.fixture(scope="package")
def client(broker):
    with Client(broker.url) as client:
        yield client


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a command in an empty directory; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for variable in [name for name in os.environ if name.startswith("RIONI_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / "contexts.toml"))
    return partial(run_command, monkeypatch, capsys)


@pytest.fixture
def rioni(run, broker, monkeypatch):
    """Run a command against the broker, with a text for standard input; return exit code, stdout and stderr."""
    monkeypatch.setenv("RIONI_URL", broker.url)
    return run


KINDS = ("event-type", "timeline", "subscription", "storage", "settings")
"""The kinds of resources that people change."""


@pytest.fixture
def state(client):
    """The state that a command may change: a function that returns the newest change and the files."""

    def state():
        newest = next(each.position for each in client.audit.entries() if each.kind.startswith(KINDS))
        return newest, sorted(map(str, Path().rglob("*")))

    return state


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def snapshot():
    """Compare the output of a command with the file of this name; see `tests.support.snapshots`."""
    return compare


@pytest.fixture(scope="package")
def left_data(tmp_path_factory) -> Path:
    """A data directory as `rioni serve` leaves it: with the default storage, created by the broker itself."""
    config = Config(data=tmp_path_factory.mktemp("left") / "data")
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        StoreMarks(base).note(everything=True)
    return config.data


@pytest.fixture
def data(left_data: Path, tmp_path: Path) -> str:
    """Such a data directory for one test."""
    return str(shutil.copytree(left_data, tmp_path / "data"))
