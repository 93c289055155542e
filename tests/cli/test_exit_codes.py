"""Every command, also one that is made later, ends with the documented code and a text without a traceback."""

import socket

import pytest

from rioni.cli.app import app
from tests.support.command_tree import leaves


COMMANDS = leaves(app)
WITHOUT_ARGUMENTS = {words: each for words, each in COMMANDS.items() if not any(one.required for one in each.params)}
CONNECTED = {words for words, each in WITHOUT_ARGUMENTS.items() if any("--url" in one.opts for one in each.params)}
ON_DATA = {words for words, each in WITHOUT_ARGUMENTS.items() if any("--data" in one.opts for one in each.params)}
MAKES_DATA = {("serve",), ("demo",), ("restore",), ("config", "show"), ("doctor",)}
"""Commands that do not need a data directory that exists."""


@pytest.fixture(scope="module")
def nowhere():
    """The URL of a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def _plain(err):
    assert "Traceback" not in err
    assert "Error" in err
    return err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_wrong_usage_is_2(run, words):
    code, out, err = run(*words, "--no-such-option")
    assert (code, out) == (2, "")
    assert "No such option" in _plain(err)


@pytest.mark.parametrize("words", sorted(CONNECTED), ids=" ".join)
def test_a_broker_that_does_not_answer_is_2(run, words, nowhere, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*words, "--url", nowhere, "--timeout", "1", stdin="")
    if words == ("doctor",):
        assert code == 1
        return
    assert code == 2, err
    _plain(err)


@pytest.mark.parametrize("words", sorted(ON_DATA - MAKES_DATA), ids=" ".join)
def test_data_that_is_not_there_is_2(run, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*words, "--data", "absent")
    assert (code, out) == (2, ""), err
    _plain(err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", sorted(ON_DATA - {("doctor",)} | {("serve",)}), ids=" ".join)
def test_settings_that_can_not_be_read_are_2(run, words, tmp_path, monkeypatch):
    """For the doctor they are a finding."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rioni.toml").write_bytes(b"port = \xff\x00")
    code, out, err = run(*words, "--config", "rioni.toml")
    assert (code, out) == (2, ""), err
    _plain(err)
