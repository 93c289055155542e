"""What every adapter of the port `Tokens` promises.

Subclasses provide the fixtures `tokens` and `good`: an adapter, and a token that stands for `ALICE` until `END_MS`.
"""

import pytest

from rioni.domain.access.authentication import TokenInfo, Tokens
from rioni.domain.errors import TokensUnavailable
from tests.support.clock import ManualClock


END_MS = 1_700_000_100_000
"""A hundred seconds after the clock's beginning."""
ALICE = TokenInfo(uid="alice", scopes=frozenset({"uid", "read"}), realm="employees", expires_at_ms=END_MS)


class TokensContract:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def test_a_known_token_has_uid_scopes_realm_and_an_end(self, tokens: Tokens, good: str):
        assert tokens.inspect(good) == ALICE
        assert tokens.inspect(good) == ALICE

    @pytest.mark.parametrize("token", ["", "x", "a.b.c", "=", "\x00", "ä", "x" * 20_000, "."])
    def test_other_tokens_are_refused(self, tokens: Tokens, token: str):
        assert tokens.inspect(token) is None

    def test_a_token_with_a_character_more_or_less_or_changed_is_refused(self, tokens: Tokens, good: str):
        changed = "A" if good[10] != "A" else "B"
        for other in (good[:-1], good + "A", good[:10] + changed + good[11:], good + "=", " " + good):
            assert tokens.inspect(other) is None

    def test_a_token_is_refused_from_its_end_on(self, tokens: Tokens, good: str, clock: ManualClock):
        assert tokens.inspect(good) == ALICE
        clock.advance(END_MS - clock.now_ms() - 1)
        assert tokens.inspect(good) == ALICE
        clock.advance(1)
        assert tokens.inspect(good) is None


class RemoteTokensContract:
    """What adapters promise that ask a server; subclasses provide `broken`, an adapter whose server is down."""

    def test_nobody_gets_in_while_nobody_can_be_asked_and_nothing_is_said_about_the_token(
        self, broken: Tokens, good: str
    ):
        for _ in range(20):
            with pytest.raises(TokensUnavailable) as caught:
                broken.inspect(good)
            assert good not in str(caught.value)
