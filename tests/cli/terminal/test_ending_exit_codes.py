"""Every command, also one that is made later, ends with the documented code and a text without a traceback."""

import re
import sys
from pathlib import Path

import pytest
import typer

from rioni.cli.app import app
from rioni.cli.terminal import ending
from tests.support.command_tree import leaves


ROOT = Path(__file__).parents[3]
CLI, TABLE = ROOT / "rioni/cli", ROOT / "docs/reference/exit-codes.md"
COMMANDS = leaves(app)
WITHOUT_ARGUMENTS = {words: each for words, each in COMMANDS.items() if not any(one.required for one in each.params)}
CONNECTED = {words for words, each in WITHOUT_ARGUMENTS.items() if any("--url" in one.opts for one in each.params)}
ON_DATA = {words for words, each in WITHOUT_ARGUMENTS.items() if any("--data" in one.opts for one in each.params)}
MAKES_DATA = {("serve",), ("demo",), ("restore",), ("config", "show"), ("doctor",)}
"""Commands that do not need a data directory that exists."""


def _plain(err):
    """Check that the last line says what was wrong."""
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("Error: "), err
    return err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_wrong_usage_is_2(run, words):
    """Reference exit-codes#codes: one line alone, whatever is wrong with the arguments."""
    code, out, err = run(*words, "--no-such-option")
    assert (code, out) == (2, "")
    assert "No such option" in _plain(err)
    assert err.count("\n") == 1
    assert f"`rioni {' '.join(words)} --help` shows what it takes." in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["publissh"], "No such command 'publissh'. Did you mean 'publish'? `rioni --help` shows what it takes."),
        (
            ["event-types", "show"],
            "Missing argument 'event_type'. `rioni event-types show --help` shows what it takes.",
        ),
        (["event-types", "show", "a", "b"], "`rioni event-types show --help` shows what it takes."),
        (["audit", "list", "--limit", "0"], "`rioni audit list --help` shows what it takes."),
        (["serve", "--port", "many"], "`rioni serve --help` shows what it takes."),
        (["audit", "--format", "parquet"], "Parquet needs a folder to write to"),
        (["rebuild", "--form"], "`rioni rebuild --help` shows what it takes."),
    ],
)
def test_wrong_arguments_are_one_line(run, arguments, said):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert said in err


def test_the_table_of_answers_names_commands():
    """Reference exit-codes#the-answer-no."""
    named = [tuple(words.split()) for words in re.findall(r"^\| `rioni ([^`]+)` \|", TABLE.read_text(), re.MULTILINE)]
    assert len(named) == len(set(named))
    of_each = {row: [words for words in COMMANDS if words[: len(row)] == row] for row in named}
    assert all(of_each.values()), of_each
    # Each module that can end with 1 has a row.
    modules = {COMMANDS[words].callback.__module__ for found in of_each.values() for words in found}
    ending = {
        path for path in CLI.rglob("*.py") if re.search(r"Exit\((FOUND|NOTHING_FOUND|REFUSED)\)", path.read_text())
    }
    shared = {"event_files.py"}
    assert {path.stem for path in ending if path.name not in shared} <= {name.rpartition(".")[2] for name in modules}


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


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (PermissionError(13, "Permission denied", "/nonexistent"), "/nonexistent can't be used: Permission denied."),
        (OSError(28, "No space left on device"), "A file can't be used: No space left on device."),
        (OSError("timed out"), "A file can't be used: timed out."),
    ],
)
def test_what_the_system_refuses_is_one_line(capsys, monkeypatch, raised, said):
    app = typer.Typer()

    @app.command()
    def command() -> None:
        raise raised

    monkeypatch.setattr(sys, "argv", ["program"])
    with pytest.raises(SystemExit) as ended:
        ending.run(app, "program")
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"Error: {said} Check disk space and permissions.\n"


def test_a_home_that_can_not_be_written_is_2(run, tmp_path, monkeypatch):
    """A machine without Java or Maven fails earlier, with another error."""
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, out, err = run("cluster", "up")
    assert (code, out) == (2, "")
    assert re.search(r"cache/rioni can't be used|This needs", _plain(err))


@pytest.mark.parametrize("words", sorted(ON_DATA - {("doctor",)} | {("serve",)}), ids=" ".join)
def test_settings_that_can_not_be_read_are_2(run, words, tmp_path, monkeypatch):
    """For the doctor they are a finding."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rioni.toml").write_bytes(b"port = \xff\x00")
    code, out, err = run(*words, "--config", "rioni.toml")
    assert (code, out) == (2, ""), err
    _plain(err)
