"""New tokens, and their entries in a file."""

from datetime import UTC, datetime

import pytest

from rioni.domain.errors import Invalid, Unavailable
from rioni.storage.tokens.tokens_file import TokensFile, add_entry, new_token
from tests.support.clock import ManualClock


SCOPES = ["uid", "nakadi.event_stream.read"]


def test_a_new_token_is_one_of_the_file_from_then_on(tmp_path):
    path = tmp_path / "tokens.toml"
    made = [new_token(uid, SCOPES, "services", None) for uid in ("shop", 'a "b" ü')]
    for each in made:
        add_entry(path, each.entry)
        assert each.token not in each.entry
    tokens = TokensFile(path, ManualClock())
    found = [tokens.inspect(each.token) for each in made]
    assert [each.uid for each in found] == ["shop", 'a "b" ü']
    assert found[0].scopes == frozenset(SCOPES)
    assert made[0].token != made[1].token


def test_a_token_ends_when_it_is_to_end(tmp_path):
    path = tmp_path / "tokens.toml"
    add_entry(path, new_token("shop", SCOPES, "services", datetime(2030, 1, 1, tzinfo=UTC)).entry)
    made = new_token("shop", SCOPES, "services", datetime(2001, 1, 1, tzinfo=UTC))
    add_entry(path, made.entry)
    assert TokensFile(path, ManualClock()).inspect(made.token) is None


def test_comments_and_other_entries_stay(tmp_path):
    path = tmp_path / "tokens.toml"
    path.write_text("# of the shop\n\n")
    add_entry(path, new_token("shop", SCOPES, "services", None).entry)
    assert path.read_text().startswith("# of the shop\n\n[[token]]\nsha256 = ")


@pytest.mark.parametrize("uid", ["", "a\nb", "a" * 256])
def test_an_entry_that_the_broker_would_refuse_is_not_made(uid):
    with pytest.raises(Invalid, match="uid of token 1"):
        new_token(uid, SCOPES, "services", None)


@pytest.mark.parametrize("text", [b"[[token]]\n", b"[token", b"\xff", b"a = 1\n"])
def test_a_file_of_something_else_is_not_changed(tmp_path, text):
    path = tmp_path / "tokens.toml"
    path.write_bytes(text)
    with pytest.raises(Invalid, match="was not changed"):
        add_entry(path, new_token("shop", SCOPES, "services", None).entry)
    assert path.read_bytes() == text


def test_a_file_that_can_not_be_written_is_named(tmp_path):
    with pytest.raises(Unavailable, match=r"absent/tokens\.toml can't be changed: No such file"):
        add_entry(tmp_path / "absent" / "tokens.toml", new_token("shop", SCOPES, "services", None).entry)
