"""Commands over HTTP: errors of the broker and of the connection end them with one line."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from rioni.cli.connections.session import BrokerSession, connected
from tests.support.scripted_server import Answer
from tests.support.waiting import WAIT_S


def test_a_command_gets_the_options_of_the_connection():
    app = typer.Typer(add_completion=False)

    @app.command()
    @connected
    def count(session: BrokerSession, name: str, *, limit: int = 1) -> None:
        """Count."""

    command = typer.main.get_command(app)
    names = [each.name for each in command.params]
    assert names == ["name", "limit", "url", "context", "token", "ca_certificate", "timeout", "json"]


def test_a_broker_that_does_not_answer_is_one_line(rioni, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    code, out, err = rioni("storages", "list", "--url", url)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert len(err.splitlines()) == 1


def test_a_refusal_of_the_broker_is_one_line_with_its_reason(rioni):
    code, out, err = rioni("storages", "show", "absent")
    assert (code, out) == (2, "")
    assert "404" in err
    assert "absent" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(502, b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n</body>\r\n</html>\r\n"),
        Answer(400, {"title": "Bad\nRequest", "detail": "a\n\r\nError: b\u2028c\n", "status": 400}),
        Answer(422, {"title": "Unprocessable", "detail": 'Field "a" is no\nField "b" is no\n', "status": 422}),
        Answer(200, b"a\nb"),
    ],
    ids=["page of a proxy", "detail", "fields", "no JSON"],
)
@pytest.mark.parametrize("words", [("event-types", "list"), ("monitoring", "version"), ("storages", "show", "a\nb")])
def test_whatever_is_answered_an_error_is_one_line(run, scripted, monkeypatch, words, answer):
    monkeypatch.setattr("rioni.cli.connections.session.ATTEMPTS", 1)
    scripted.script(answer)
    code, out, err = run(*words, "--url", scripted.url)
    assert (code, out) == (2, "")
    assert err.startswith("Error: GET ")
    assert len(err.splitlines()) == 1


def test_a_program_that_stops_reading_is_no_error(broker, tmp_path):
    """The reader has ended before the first line is written."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rioni", "storages", "list", "--url", broker.url]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=WAIT_S)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_is_the_exit_code_130(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            assert run("storages", "list", "--url", url, "--timeout", "200") == (130, "", "")
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("command", [["--version"], ["context", "list"]])
def test_commands_import_no_more_than_they_need(command):
    script = f"""
import sys
from rioni.__main__ import main
sys.argv[1:] = {command}
try:
    main()
except SystemExit:
    pass
print([name for name in ("httpx", "rich", "structlog", "rioni.config.settings", "rioni.client") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RIONI_CONTEXTS": str(Path("absent"))},
    )
    assert json.loads(done.stdout.splitlines()[-1].replace("'", '"')) in ([], ["rich"])
