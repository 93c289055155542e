"""A launcher that goes on between test runs."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rioni.testing import Broker, launcher, warm
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.usefixtures("launched")
# With -P it is the package of the tests, not that of the working directory.
COMMAND = [sys.executable, "-P", "-m", "rioni.testing", "warm"]


@pytest.fixture(scope="module")
def running() -> Iterator[subprocess.Popen[str]]:
    """A warm launcher; the one of this process has ended."""
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        # On a busy machine it takes its time to greet, and the process of the test would start a separate launcher.
        monkeypatch.setattr(warm, "GREETS_WITHIN_S", WAIT_S)
        launcher.stop()
        with subprocess.Popen(COMMAND, stderr=subprocess.PIPE, text=True) as process:
            try:
                wait_until(lambda: warm.path().exists() or process.poll() is not None)
                yield process
            finally:
                launcher.stop()
                process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0


def test_brokers_are_forked_from_it_and_end_with_their_tests(running):
    with Broker() as broker:
        assert launcher.start()._process is None
        folder = broker._folder
        assert broker.client().event_types.list() == []
    assert not folder.exists()
    launcher.stop()
    assert running.poll() is None
    broker = Broker()
    broker.start()
    folder = broker._folder
    broker._control._socket.close()
    wait_until(lambda: not folder.exists())


def test_it_loads_modules_again_that_have_changed(running):
    with Broker() as broker:
        Path(warm.__file__).touch()
        launcher.stop()
        with Broker() as another:
            assert another.client().event_types.list() == []
            assert launcher.start()._process is None
        assert broker.client().event_types.list() == []


def test_there_is_one(running):
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Error: The socket for tests can't be listened on: another one runs already." in done.stderr


def test_one_of_another_python_or_package_is_not_used(running, monkeypatch: pytest.MonkeyPatch):
    launcher.stop()
    monkeypatch.setattr(warm, "greeting", lambda: b"/another/python")
    assert warm.connected() is None
