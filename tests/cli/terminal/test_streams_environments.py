"""The environments that users have: in each of them commands give the same data and exit codes, without a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rioni.client import EventType, Schema


READ_ONLY = "/proc"
"""A folder in which no process can write, with any rights."""
ENVIRONMENTS = {
    "without HOME": {"HOME": None, "XDG_CONFIG_HOME": None},
    "HOME read-only": {"HOME": READ_ONLY, "XDG_CONFIG_HOME": None, "XDG_CACHE_HOME": None},
    "HOME absent": {"HOME": "/absent/home", "XDG_CONFIG_HOME": None},
    "TMPDIR read-only": {"TMPDIR": READ_ONLY},
    "without TERM": {"TERM": None},
    "a dumb terminal": {"TERM": "dumb"},
    "NO_COLOR": {"NO_COLOR": "1"},
    "FORCE_COLOR": {"FORCE_COLOR": "1"},
    "LANG C": {"LANG": "C", "LC_ALL": "C"},
    "LANG POSIX": {"LANG": "POSIX", "LC_ALL": "POSIX"},
    "LANG absent": {"LANG": "xx_XX.UTF-8", "LC_ALL": "xx_XX.UTF-8"},
    "60 columns": {"COLUMNS": "60"},
    "without UTF-8 mode": {"PYTHONUTF8": "0", "LC_ALL": "en_US.ISO-8859-1"},
    "no virtual environment": {"VIRTUAL_ENV": None, "PATH": "/usr/bin:/bin"},
}
COMMANDS = {
    "--version": 0,
    "context list --json": 0,
    "event-types show {name} --json": 0,
    "event-types show {name} --yaml": 0,
    "search {name} --json": 1,
    "event-types show absent": 2,
}
"""With their exit codes."""
RUN = "import sys; from rioni.__main__ import main; sys.argv[0] = 'rioni'; main()"


@pytest.fixture(scope="module")
def subject(broker, client):
    """The broker with an event type whose text is not ASCII."""
    schema = Schema.json({"description": "Größe 中"})
    client.event_types.create(EventType(name="cli-environments", owning_application="größe", schema=schema))
    return broker.url


def run(subject: str, command: str, changes: dict[str, str | None], cwd: str | Path = READ_ONLY, **options: object):
    environment = {**os.environ, "RIONI_URL": subject, **changes}
    given = {name: value for name, value in environment.items() if value is not None}
    words = command.format(name="cli-environments").split()
    options = {"stdin": subprocess.DEVNULL, **options}
    return subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env=given,
        cwd=cwd,
        capture_output=True,
        timeout=120,
        check=False,
        **options,
    )


@pytest.fixture(scope="module")
def usual(subject, tmp_path_factory):
    """The results of all commands in an ordinary environment."""
    found = {command: run(subject, command, {}, tmp_path_factory.mktemp("usual")) for command in COMMANDS}
    assert {command: done.returncode for command, done in found.items()} == COMMANDS
    return found


def check(command, done, usual):
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode == COMMANDS[command], (command, done.stderr.decode())
    if COMMANDS[command] == 2:
        # FORCE_COLOR and the width change nothing in the line that says what was wrong.
        assert done.stderr.decode("utf-8", "replace").splitlines()[-1].startswith("Error: ")
        assert done.stderr.count(b"\n") == 1
    if command.endswith("--json"):
        # JSON stays JSON in every encoding.
        assert [*map(json.loads, done.stdout.splitlines())] == [*map(json.loads, usual[command].stdout.splitlines())]
    elif done.stdout != usual[command].stdout:
        # An encoding that lacks characters gets them escaped.
        assert done.stdout.decode("unicode_escape") == usual[command].stdout.decode(), command


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_commands_do_the_same_in_every_environment(subject, usual, name):
    """Reference exit-codes#codes."""
    for command in COMMANDS:
        check(command, run(subject, command, ENVIRONMENTS[name]), usual)


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_commands_do_the_same_with_every_umask(subject, usual, umask):
    for command in COMMANDS:
        check(command, run(subject, command, {}, umask=umask), usual)
