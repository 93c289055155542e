import pytest

from rioni.domain.access.authorization import TokenInfo
from rioni.domain.errors import TokensUnavailable
from rioni.storage.tokens.sources import CombinedTokens
from rioni.storage.tokens.tokens_file import LOOK_EVERY_S, TokensFile
from tests.contracts.tokens import ALICE, TokensContract
from tests.support.clock import ManualClock
from tests.support.tokens import sha256, write_tokens


GOOD = "a-token-of-alice"
ALICES = f"""
[[token]]
sha256 = "{sha256(GOOD)}"
uid = "alice"
scopes = ["uid", "read"]
realm = "employees"
expires = 2023-11-14T22:15:00Z
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tokens.toml"
    path.write_text(ALICES)
    return path


class TestTokensFile(TokensContract):
    @pytest.fixture
    def good(self):
        return GOOD

    @pytest.fixture
    def tokens(self, path, clock):
        return TokensFile(path, clock)


class TestCombinedTokens(TokensContract):
    """The first source that knows a token decides (reference common#token-sources)."""

    @pytest.fixture
    def good(self):
        return GOOD

    @pytest.fixture
    def tokens(self, path, clock, tmp_path):
        write_tokens(tmp_path / "other.toml", {"other": {"uid": "bob"}})
        return CombinedTokens([TokensFile(tmp_path / "other.toml", clock), TokensFile(path, clock)])


def test_an_entry_needs_only_hash_and_uid(tmp_path):
    write_tokens(tmp_path / "tokens.toml", {"short": {"uid": "shop"}})
    info = TokensFile(tmp_path / "tokens.toml", ManualClock()).inspect("short")
    assert info == TokenInfo(uid="shop", scopes=frozenset({"uid"}), realm="services")


def test_a_changed_file_is_read_again(path):
    clock = ManualClock()
    tokens = TokensFile(path, clock)
    write_tokens(path, {"new": {"uid": "bob"}})
    assert tokens.inspect(GOOD) == ALICE
    clock.advance(int(LOOK_EVERY_S * 1000))
    assert tokens.inspect(GOOD) is None
    assert tokens.inspect("new").uid == "bob"


@pytest.mark.parametrize("content", [None, "", "[[token]]\n", "\xff", "[[tokens]]\n"])
def test_while_the_file_can_not_be_read_no_token_is_accepted(path, content):
    clock = ManualClock()
    tokens = TokensFile(path, clock)
    path.unlink()
    if content is not None:
        path.write_text(content, encoding="latin-1")
    clock.advance(int(LOOK_EVERY_S * 1000))
    if content == "":
        assert tokens.inspect(GOOD) is None
        return
    for _ in range(2):
        with pytest.raises(TokensUnavailable, match=r"^Tokens can't be checked at present$"):
            tokens.inspect(GOOD)
    path.write_text(ALICES)
    clock.advance(int(LOOK_EVERY_S * 1000))
    assert tokens.inspect(GOOD) == ALICE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("sha256 = ", "digest = "), "unknown field `digest`"),
        ((sha256(GOOD), GOOD), r"at `\$.token\[0\].sha256`"),
        (('uid = "alice"', 'uid = ""'), "the uid of token 1 is empty"),
        (("00Z", "00"), "the end of token 1 has no offset"),
        (("[[token]]", "[[token"), "line 2"),
    ],
)
def test_an_unusable_file_is_rejected_with_the_reason(path, change, reason):
    path.write_text(ALICES.replace(*change))
    with pytest.raises(TokensUnavailable, match=reason):
        TokensFile(path, ManualClock())
