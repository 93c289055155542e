"""`rioni context`: brokers by name, in a file without secrets."""

import stat
import tomllib
from pathlib import Path


PROD = ("context", "add", "prod", "--url", "https://broker.example.org")


def test_contexts_are_added_used_shown_and_removed(run, snapshot, tmp_path):
    command = "vault read -field=token 'a b'"
    assert run(*PROD, "--token-command", command)[0] == 0
    assert run("context", "add", "test", "--url", "http://test:8080", "--token-env", "T", "--ca-certificate", "a.pem")[
        0
    ] == (0)
    assert tomllib.loads(Path("contexts.toml").read_text()) == {
        "current": "prod",
        "contexts": {
            "prod": {"url": "https://broker.example.org", "token_command": command},
            "test": {"url": "http://test:8080", "token_env": "T", "ca_certificate": str(tmp_path / "a.pem")},
        },
    }
    assert stat.S_IMODE(Path("contexts.toml").stat().st_mode) == 0o600
    said = [
        run("context", *arguments, "--json")[1]
        for arguments in (["list"], ["show"], ["show", "test"], ["use", "test"], ["remove", "test"], ["list"])
    ]
    snapshot("context", "".join(said), folder=str(tmp_path))


def test_people_see_the_one_in_use_and_where_tokens_come_from(run):
    run(*PROD, "--token-env", "BROKER_TOKEN")
    run("context", "add", "a", "--url", "http://a", "--use")
    lines = run("context", "list")[1].splitlines()
    assert lines[1].split() == ["*", "a", "http://a"]
    assert lines[2].split() == ["prod", "https://broker.example.org", "$BROKER_TOKEN"]


def test_a_shell_with_its_own_choice_is_told_so(run, monkeypatch):
    run(*PROD)
    monkeypatch.setenv("RIONI_URL", "http://other")
    assert "but RIONI_URL of this shell is stronger" in run("context", "use", "prod")[1]
    assert "RIONI_URL" in run("context", "show")[1]


def test_a_literal_token_is_refused_and_not_written(run):
    code, out, err = run(*PROD, "--token", "sesame")
    assert (code, out) == (2, "")
    assert "a secret is never kept in the file of contexts" in err
    assert "--token-command" in err
    assert not Path("contexts.toml").exists()


def test_an_unknown_context_names_those_that_there_are(run):
    run(*PROD)
    for command in ("use", "remove", "show"):
        code, _, err = run("context", command, "test")
        assert code == 2
        assert err.startswith("Error: There is no context test; there are: prod.")
