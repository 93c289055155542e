"""Every command in every environment: help, and a broker that is not there, end as documented, without a traceback."""

import os

import pytest

from rioni.cli.app import app
from tests.support.command_tree import leaves


COMMANDS = leaves(app)
CONNECTED = {
    words: each
    for words, each in COMMANDS.items()
    if any("--url" in one.opts for one in each.params) and not any(one.required for one in each.params)
}
READ_ONLY = "/proc"
"""A folder in which no process can write, with any rights."""
ENVIRONMENTS = {
    "no HOME, no TERM, umask 000, read-only folder": ({"HOME": None, "TERM": None}, 0o000, READ_ONLY),
    "HOME absent, dumb, umask 077, 60 columns": (
        {"HOME": "/absent/home", "TERM": "dumb", "COLUMNS": "60"},
        0o077,
        None,
    ),
    "HOME read-only, umask 022": ({"HOME": READ_ONLY, "COLUMNS": "79"}, 0o022, None),
}
"""Variables, the umask, and the working directory; there is no terminal. Each is worse than what users combine."""
SUCCEEDS = {("context", "list"), ("cheat",), ("man",), ("config", "show"), ("completion", "bash")}


@pytest.fixture(params=ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def run_there(request, run, monkeypatch):
    """Run a command in an environment."""
    variables, umask, folder = request.param
    for variable, value in {"RIONI_CONTEXTS": None, "XDG_CONFIG_HOME": None, **variables}.items():
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    if folder is not None:
        monkeypatch.chdir(folder)
    before = os.umask(umask)
    yield run
    os.umask(before)


def test_help_is_shown(run_there):
    for words in COMMANDS:
        code, out, err = run_there(*words, "--help")
        assert (code, err) == (0, ""), words
        assert f"Usage: rioni {' '.join(words)}" in " ".join(out.split()), words


def test_a_broker_that_is_not_there_is_one_line(run_there, nowhere, monkeypatch):
    # Attempts and what lies between them are the same everywhere, and take long.
    monkeypatch.setattr("rioni.cli.connections.session.ATTEMPTS", 1)
    for words in CONNECTED:
        code, _, err = run_there(*words, "--url", nowhere, "--timeout", "1", stdin="")
        if words == ("doctor",):  # to which that is a finding
            assert code == 1
            continue
        assert code == 2, (words, err)
        assert err.splitlines()[-1].startswith("Error: "), (words, err)
        assert "Traceback" not in err


def test_commands_that_need_no_broker_succeed(run_there):
    for words in SUCCEEDS:
        code, out, err = run_there(*words)
        assert (code, out + err != "") == (0, True), words
        assert "Traceback" not in err


def test_a_broker_is_asked(run_there, broker):
    code, out, err = run_there("monitoring", "health", "--url", broker.url, "--json")
    assert (code, err) == (0, "")
    assert out
