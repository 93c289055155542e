from pathlib import Path

import pytest

from rioni.testing import Broker, BrokerError, launcher


pytestmark = pytest.mark.usefixtures("launched")


def test_another_process_is_started_where_one_was_killed():
    process = launcher.start()._process
    with Broker() as broker:
        process.kill()
        process.wait()
        broker.create_event_type("order.created")
        with Broker() as another:
            assert another.client().event_types.list() == []
        folder = broker._folder
    assert launcher.start()._process is not process
    assert not folder.exists()


def test_a_server_that_can_not_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "gevent.py").write_text("raise ImportError('no such luck')\n")
    launcher.stop()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(BrokerError, match="no such luck"):
        Broker().start()
    launcher.stop()


def test_modules_of_the_working_directory_are_not_those_of_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "gevent.py").write_text("raise ImportError('of the user')\n")
    launcher.stop()
    monkeypatch.chdir(tmp_path)
    with Broker() as broker:
        assert broker.client().event_types.list() == []


def test_the_working_directory_may_be_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    launcher.stop()
    (folder := tmp_path / "removed").mkdir()
    with monkeypatch.context() as patched:
        patched.chdir(folder)
        launcher.start()
        with Broker():
            folder.rmdir()
    with Broker() as broker:
        assert broker.client().event_types.list() == []
