"""`rioni tokens create`: a token is shown once, and only its hash is kept."""

import json
import re
import tomllib
from pathlib import Path

from tests.support.tokens import FULL_SCOPES, sha256


CREATE = ("tokens", "create", "--uid", "shop")


def test_with_a_file_the_token_is_all_that_is_printed(run):
    code, out, err = run(*CREATE, "--scope", "nakadi.event_stream.write", "--days", "90", "--file", "tokens.toml")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"[\w-]{43}\n", out)
    (entry,) = tomllib.loads(Path("tokens.toml").read_text())["token"]
    assert entry.pop("expires")
    assert entry == {
        "sha256": sha256(out.strip()),
        "uid": "shop",
        "scopes": ["uid", "nakadi.event_stream.write"],
        "realm": "services",
    }


def test_without_a_file_the_entry_is_printed_too(run):
    _, out, _ = run(*CREATE)
    token, _, entry = out.partition("\n\n")
    (found,) = tomllib.loads(entry)["token"]
    assert found["sha256"] == sha256(token)
    _, out, _ = run(*CREATE, "--json")
    shown = json.loads(out)
    assert shown["sha256"] == sha256(shown["token"])
    assert list(shown) == ["token", "sha256", "uid", "scopes", "realm", "expires", "file", "entry"]


def test_an_unknown_scope_is_an_error_with_those_that_there_are(run):
    code, _, err = run(*CREATE, "--scope", "all", "--file", "tokens.toml")
    assert code == 2
    for scope in FULL_SCOPES:
        assert scope in err
    assert not Path("tokens.toml").exists()
