"""Outputs that can't be written: one line and exit code 2, for every command, and no traceback."""

import contextlib
import itertools
import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from rioni.cli.terminal import streams
from rioni.client import EventType, Schema
from tests.support.commands import all_commands
from tests.support.waiting import WAIT_S, wait_until


FULL = "Error: Standard output can't be written: No space left on device."
CLOSED = "Error: Standard output can't be written: it is closed."
COMMANDS = [words for words, _ in all_commands()]
ONE_OF_EACH_GROUP = [*{words[0]: words for words in COMMANDS}.values()]
WITH_OUTPUT = [
    "context list --json",
    "config show",
    "man",
    "cheat",
    "cheat publish",
    "completion fish",
    "--version",
    "event-types apply --schema",
    "event-types list",
    "event-types list --json",
    "event-types show {name}",
    "event-types show {name} --json",
    "event-types show {name} --yaml",
    "schemas show {name}",
    "partitions list {name}",
    "publish {name} event.jsonl",
    "publish {name} event.jsonl --json",
    "tail {name} --no-follow",
    "tail {name} --no-follow --json",
    "tail {name} --no-follow --table",
    "tail {name} --no-follow --template {{id}}",
    "search {name}",
    "settings features",
    "storages list",
    "monitoring metrics",
    "registry partition-strategies",
    "audit list",
    "log checkpoint",
    "doctor --list",
    "subscriptions create --owning-application shop --event-type {name}",
    "types {name}",
]


@pytest.fixture
def to(run, monkeypatch):
    """Run a command with standard output on a file; return exit code and stderr."""

    def run_to(path, *arguments):
        fd = os.open(path, os.O_WRONLY)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", streams.output_on(fd))
            code, _, err = run(*arguments)
        return code, err

    return run_to


@pytest.fixture
def subject(client, name, monkeypatch, broker):
    """An event type with an event."""
    monkeypatch.setenv("RIONI_URL", broker.url)
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    client.publish(name, [{"id": "A"}])
    return name


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_that_can_not_be_written_is_an_error_of_one_line(to, command):
    assert to("/dev/full", *command, "--help") == (2, f"{FULL}\n")


@pytest.mark.parametrize("command", WITH_OUTPUT)
def test_output_that_can_not_be_written_is_an_error_of_one_line(to, subject, command):
    if command.startswith("context"):
        Path("contexts.toml").write_text('[contexts.a]\nurl = "http://localhost:1"\n')
        Path("contexts.toml").chmod(0o600)
    Path("event.jsonl").write_text("{}\n")
    code, err = to("/dev/full", *shlex.split(command.format(name=subject)))
    assert code == 2
    assert err.splitlines()[-1] == FULL
    assert "Traceback" not in err


def _python(arguments, redirections, **environ):
    command = f"{shlex.quote(sys.executable)} -m rioni {arguments} {redirections}"
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize(
    ("redirections", "code", "err"),
    [
        (">/dev/full", 2, FULL),
        (">&-", 2, CLOSED),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
        ("<&-", 0, ""),
        (">&- 2>&- <&-", 2, ""),
        (">/dev/full 2>/dev/full", 2, ""),
        ("| true; exit ${PIPESTATUS[0]}", 141, ""),
    ],
)
@pytest.mark.parametrize("arguments", ["config show", "man"])
def test_every_state_of_the_standard_streams_has_its_exit_code(arguments, redirections, code, err):
    done = _python(arguments, redirections)
    assert (done.returncode, done.stderr.strip()) == (code, err)


def test_help_of_which_nobody_reads_the_end_is_silent():
    done = _python("--help", "| true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("redirections", [">&-", ">/dev/full", "2>&-", "2>/dev/full", "| true; exit ${PIPESTATUS[0]}"])
def test_errors_keep_their_exit_code_whatever_the_streams(redirections):
    assert _python("verify --data absent", redirections).returncode == 2


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_a_terminal_that_lacks_characters_gets_escapes_and_json_stays_json(tmp_path, encoding):
    (tmp_path / "contexts.toml").write_text('[contexts."注文-Grüße"]\nurl = "http://localhost:1"\n')
    (tmp_path / "contexts.toml").chmod(0o600)
    environ = {"PYTHONIOENCODING": encoding, "RIONI_CONTEXTS": str(tmp_path / "contexts.toml")}
    done = _python("context list --json", "| iconv -f latin1 -t utf-8", **environ)
    assert json.loads(done.stdout)["name"] == "注文-Grüße"
    done = _python("context list", "| iconv -f latin1 -t utf-8", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u6ce8\\u6587-Gr" in done.stdout


@pytest.mark.parametrize("redirections", ["2>&-", ">&-", ">&- 2>&- <&-", "2>/dev/full"])
def test_the_server_serves_whatever_its_streams_are(tmp_path, redirections):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = f"exec {shlex.quote(sys.executable)} -m rioni serve --port {port} --workers 1 --data data {redirections}"
    with subprocess.Popen(
        ["bash", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            wait_until(lambda: _answers(port) or process.poll() is not None)
            assert process.poll() is None
        finally:
            process.terminate()
        assert process.wait(WAIT_S) == 0


def _answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False, timeout=WAIT_S).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("command", ONE_OF_EACH_GROUP, ids=" ".join)
def test_help_fits_a_narrow_terminal_that_has_ascii_alone(run, monkeypatch, tmp_path, command):
    monkeypatch.setenv("COLUMNS", "60")
    path = tmp_path / "help"
    with path.open("w", encoding="ascii", errors="backslashreplace") as file, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", streams.output_on(file.fileno(), file))
        code, _, err = run(*command, "--help")
    assert (code, err) == (0, "")
    lines = path.read_text(encoding="unicode_escape").splitlines()
    assert "Usage:" in "".join(lines[:2])
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("kind", ["standard output", "file"])
def test_an_interrupt_writes_nothing_twice_and_loses_nothing(tmp_path, kind):
    """Whatever step of Python it comes before: Ctrl-C while `rioni tail` writes an event."""
    interrupted = True
    for step in itertools.count(1):
        path = tmp_path / str(step)
        with contextlib.ExitStack() as stack:
            if kind == "file":
                stream = stack.enter_context(streams.created(path))
            else:
                stream = streams.output_on(stack.enter_context(path.open("wb")).fileno())
            stream.write("one\n")
            interrupted = _interrupted(stream.flush, step)
            stream.write("two\n")
            stream.flush()
        assert path.read_text() == "one\ntwo\n", step
        if not interrupted:
            break
    assert step > 10


def _interrupted(run, step):
    """Raise KeyboardInterrupt before one of the module's steps; return whether it has that many."""
    left = step

    def trace(frame, event, _argument):
        nonlocal left
        if frame.f_code.co_filename != streams.__file__:
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
