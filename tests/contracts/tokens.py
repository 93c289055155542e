"""The contract of the port `Tokens`.

Subclasses provide the fixtures `tokens` and `good`: an adapter, and a token for `ALICE` that is valid until `END_MS`.
"""

import pytest

from rioni.domain.access.authorization import TokenInfo, Tokens
from rioni.domain.errors import TokensUnavailable
from tests.support.clock import ManualClock


END_MS = 1_700_000_100_000
"""A hundred seconds after the clock's start."""
ALICE = TokenInfo(uid="alice", scopes=frozenset({"uid", "read"}), realm="employees", expires_at_ms=END_MS)


class TokensContract:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def test_a_known_token_has_uid_scopes_realm_and_an_expiry(self, tokens: Tokens, good: str):
        assert tokens.inspect(good) == ALICE
        assert tokens.inspect(good) == ALICE

    @pytest.mark.parametrize("token", ["", "x", "a.b.c", "=", "\x00", "ä", "x" * 20_000, "."])
    def test_unknown_tokens_are_rejected(self, tokens: Tokens, token: str):
        assert tokens.inspect(token) is None

    def test_a_token_with_a_character_added_removed_or_changed_is_rejected(self, tokens: Tokens, good: str):
        changed = "A" if good[10] != "A" else "B"
        for other in (good[:-1], good + "A", good[:10] + changed + good[11:], good + "=", " " + good):
            assert tokens.inspect(other) is None

    def test_tokens_that_are_unknown_have_not_expired(self, tokens: Tokens):
        assert not any(tokens.is_over(token) for token in ("", "x", "a.b.c", "\x00", "ä", "x" * 20_000))

    def test_a_token_is_rejected_from_its_expiry_on(self, tokens: Tokens, good: str, clock: ManualClock):
        assert tokens.inspect(good) == ALICE
        clock.advance(END_MS - clock.now_ms() - 1)
        assert tokens.inspect(good) == ALICE
        assert not tokens.is_over(good)
        clock.advance(1)
        assert tokens.inspect(good) is None


class RemoteTokensContract:
    """The contract of adapters that query a server; subclasses provide `broken`, an adapter whose server is down."""

    def test_while_its_server_is_down_every_token_is_rejected_and_none_is_revealed(self, broken: Tokens, good: str):
        for _ in range(20):
            with pytest.raises(TokensUnavailable) as caught:
                broken.inspect(good)
            assert good not in str(caught.value)
