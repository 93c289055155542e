"""The file of contexts: what is wrong in it is named, and token commands are run with care."""

import os
import sys
from pathlib import Path

import pytest

from rioni.cli.connections import connection
from rioni.cli.connections.connection import (
    Contexts,
    SavedContext,
    changed_contexts,
    checked_url,
    contexts_file,
    read_contexts,
)
from rioni.domain.errors import Invalid, Unavailable


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "contexts.toml"
    monkeypatch.setenv("RIONI_CONTEXTS", str(path))
    return path


def test_the_file_is_in_the_folder_of_configurations(monkeypatch):
    monkeypatch.delenv("RIONI_CONTEXTS")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/xdg-jane")
    assert contexts_file() == Path("/etc/xdg-jane/rioni/contexts.toml")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert contexts_file() == Path.home() / ".config/rioni/contexts.toml"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("current = ", "is not TOML"),
        ("active = 'a'", "active is unknown"),
        ("current = 1", "`current` is a name"),
        ("contexts = 1", "`contexts` has a table for each name"),
        ("current = 'a'", "There is no context a; there are: none"),
        ("contexts.a = 1", "a is not a table"),
        ("[contexts.a]", "a has no url"),
        ("[contexts.a]\nurl = 1", "a has `url`; there are url, token_command"),
        ("[contexts.a]\nurl = 'http://a'\nulr = 'x'", "a has `ulr`; there are"),
        ("[contexts.a]\nurl = 'http://a'\ntoken = 'sesame'", "a has a `token`: a secret is never kept"),
        ("[contexts.a]\nurl = 'ftp://a'", "ftp://a is not a base URL"),
        ("[contexts.a]\nurl = 'http://a'\ntoken_env = 'A'\ntoken_command = 'b'", "not both"),
        ("[contexts.a]\nurl = 'http://a'\ntoken_command = '\"'", "can't be split into words"),
        ("[contexts.a]\nurl = 'http://a'\ntoken_command = ''", "The token command is empty"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(path, text, reason):
    path.write_text(text)
    with pytest.raises(Invalid) as raised:
        read_contexts()
    assert reason in str(raised.value)
    assert str(path) in str(raised.value)
    assert "sesame" not in str(raised.value)


def test_a_byte_order_mark_as_editors_write_it_is_ignored(path):
    path.write_text('\ufeff[contexts.here]\nurl = "http://localhost:8080"\r\n', encoding="utf-8")
    path.chmod(0o600)
    assert list(read_contexts().contexts) == ["here"]


def test_a_file_that_others_may_write_to_is_not_used(path):
    path.write_text("")
    path.chmod(0o620)
    with pytest.raises(Invalid, match="chmod 600"):
        read_contexts()


@pytest.mark.parametrize("name", ["a", "a.b", 'with "quotes"', "tab\tdel\x7f", "ünïcode 🐈", "]"])
def test_any_text_is_written_and_read_again(name):
    context = SavedContext(f"http://host/{name.encode().hex()}", token_command=f"echo '{name}'")
    with changed_contexts() as changed:
        changed.contexts[name] = context
        changed.current = name
    assert read_contexts() == Contexts(name, {name: context})


def test_a_change_that_fails_leaves_the_file_as_it_was(path):
    with changed_contexts() as changed:
        changed.contexts["a"] = SavedContext("http://a")
    before = path.read_text()
    with pytest.raises(Invalid), changed_contexts() as changed:
        changed.get(changed.contexts.pop("a").url)
    assert path.read_text() == before
    assert {each.name for each in path.parent.iterdir()} == {"contexts.toml", ".contexts.toml.lock"}


def test_two_changes_at_the_same_time_do_not_lose_one():
    with changed_contexts() as first:
        first.contexts["a"] = SavedContext("http://a")
        with pytest.raises(Unavailable, match="try again"), changed_contexts():
            pass
    assert list(read_contexts().contexts) == ["a"]


@pytest.mark.parametrize(
    "url", ["broker", "https://", "http://a:port", "http://a?x=1", "http://a/#x", "file:///a", "http://[a"]
)
def test_what_is_no_base_url_is_refused(url):
    with pytest.raises(Invalid):
        checked_url(url)


def test_a_url_with_a_password_is_refused_without_showing_it():
    with pytest.raises(Invalid, match="user or password") as raised:
        checked_url("https://jane:sesame@broker")
    assert "sesame" not in str(raised.value)


# --- tokens ---


def _command(script: str) -> SavedContext:
    return SavedContext("http://a", token_command=f'{sys.executable} -c "{script}"')


def test_the_output_of_the_command_is_the_token():
    assert _command("print('t0ken')").token() == "t0ken"


def test_the_command_runs_without_a_shell_and_without_standard_input():
    assert _command("import sys; print(sys.argv[1] + sys.stdin.read())").token_command is not None
    context = SavedContext(
        "http://a", token_command=f"{sys.executable} -c 'import sys; print(sys.stdin.read() + chr(36))'"
    )
    assert context.token() == "$"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise SystemExit(3)", "failed with exit code 3"),
        ("pass", "holds no token"),
        ("print('two words')", "holds no token"),
        ("print('a'); print('b')", "holds no token"),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", "is not a token"),
    ],
)
def test_a_command_that_gives_no_token_is_an_error_that_does_not_show_its_output(script, reason):
    with pytest.raises((Invalid, Unavailable), match=reason):
        _command(script).token()


def test_a_command_that_is_missing_or_takes_too_long_is_an_error(monkeypatch):
    with pytest.raises(Invalid, match="can't be run: No such file"):
        SavedContext("http://a", token_command="absent-command").token()
    monkeypatch.setattr(connection, "TOKEN_COMMAND_TIMEOUT_S", 0.01)
    with pytest.raises(Unavailable, match="did not end within"):
        _command("import time; time.sleep(60)").token()


def test_a_variable_holds_the_token(monkeypatch):
    context = SavedContext("http://a", token_env="BROKER_TOKEN")
    with pytest.raises(Invalid, match="BROKER_TOKEN holds no token"):
        context.token()
    monkeypatch.setenv("BROKER_TOKEN", "t0ken\n")
    assert context.token() == "t0ken"
    assert os.environ["BROKER_TOKEN"] == "t0ken\n"
