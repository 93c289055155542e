"""Completion of names: from the broker of the command line so far, in time, and silent on errors."""

import os
import socket
import subprocess
import sys

import pytest

from rioni.cli.connections import completions
from rioni.client import EventType, Schema, Storage


@pytest.fixture
def complete(run, monkeypatch):
    """A function that returns bash's completions for the last word of a command line."""

    def ask(line):
        words = line.split(" ")
        monkeypatch.setenv("_RIONI_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        code, out, err = run()
        assert (code, err) == (0, "")
        return out.split()

    return ask


def test_commands_and_options_are_completed(complete):
    assert complete("rioni stora") == ["storages"]
    assert complete("rioni storages l") == ["list"]
    assert complete("rioni storages list --ca") == ["--ca-certificate"]
    assert complete("rioni completion z") == ["zsh"]


def test_commands_are_described_without_the_targets_of_links(run, monkeypatch):
    monkeypatch.setenv("_RIONI_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "rioni storages li")
    assert run()[1] == "list\tShow all storages.\n"


def test_names_are_those_of_the_broker_of_the_command_line(complete, broker, client, name):
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    client.storages.create(Storage(id=name, storage_type="embedded"))
    assert complete(f"rioni schemas list --url {broker.url} {name[:-1]}") == [name]
    assert complete(f"rioni storages show --url {broker.url} {name}") == [name]
    client.storages.delete(name)


def test_contexts_are_completed(complete, run, monkeypatch):
    for each in ("prod", "preview", "test"):
        run("context", "add", each, "--url", "http://localhost:1")
    assert complete("rioni storages list --context pr") == ["preview", "prod"]
    assert complete("rioni context use pro") == ["prod"]


def test_topics_are_completed(complete):
    assert complete("rioni cheat stor") == ["storages"]


def test_a_broker_that_does_not_answer_offers_nothing_and_does_not_delay(complete, monkeypatch):
    """The system accepts the connection, but there is never an answer."""
    monkeypatch.setattr(completions, "DEADLINE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert complete(f"rioni schemas list --url http://127.0.0.1:{silent.getsockname()[1]} ") == []


def test_errors_are_silent(complete, tmp_path):
    assert complete("rioni schemas list --url ftp://nowhere ") == []
    (tmp_path / "contexts.toml").write_text("[")
    assert complete("rioni context use ") == []
    assert complete("rioni schemas list ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_this_program(run, shell):
    code, script, _ = run("completion", shell)
    assert code == 0
    # For zsh, too, the names come line by line, not as a script.
    assert f"_RIONI_COMPLETE=complete_{'fish' if shell == 'zsh' else shell}" in script


def test_bash_accepts_the_script(run):
    script = run("completion", "bash")[1]
    done = subprocess.run(["bash", "-c", f"{script}\ncomplete -p rioni"], capture_output=True, text=True, check=True)
    assert "_rioni_completion rioni" in done.stdout


def test_a_token_command_does_not_write_to_the_prompt(run, broker, tmp_path):
    command = "sh -c 'echo please log in >&2; exit 1'"
    assert run("context", "add", "a", "--url", broker.url, "--token-command", command)[0] == 0
    words = "rioni\nschemas\nlist\n"
    done = subprocess.run(
        [sys.executable, "-m", "rioni"],
        env={**os.environ, "_RIONI_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
