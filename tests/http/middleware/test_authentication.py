from dataclasses import dataclass

import pytest

from rioni.domain.access.authorization import UNAUTHENTICATED, Attribute, Mode, TokenInfo, TokenPolicy
from rioni.domain.errors import InsufficientRealm, InsufficientScope, TokensUnavailable, Unauthenticated
from rioni.http.middleware.authentication import RECHECK_S, TOKEN_CHARACTERS_MAX, Authentication
from tests.support.clock import ManualClock


INFO = TokenInfo(uid="alice", scopes=frozenset({"uid"}), realm="employees")
END_MS = ManualClock().now_ms() + 1_000_000


@dataclass
class Source:
    """A source of tokens that returns the same for all of them."""

    info: TokenInfo | None = INFO
    down: bool = False
    asked: int = 0

    def inspect(self, _token):
        self.asked += 1
        if self.down:
            raise TokensUnavailable("down")
        return self.info

    def is_over(self, _token):
        return False


@pytest.fixture
def clock():
    return ManualClock()


def authentication(source, clock, mode=Mode.BASIC, **demands):
    return Authentication(TokenPolicy(mode=mode, **demands), source, clock)


def caller(source, clock, **demands):
    caller = authentication(source, clock, **demands).caller("Bearer token")
    caller.check("uid")
    return caller


def test_while_authentication_is_off_no_source_is_queried_whatever_the_header(clock):
    """Reference common#modes, authorization#authentication-off."""
    source = Source(down=True)
    for header in (None, "Bearer x", "nonsense"):
        caller = authentication(source, clock, Mode.OFF).caller(header)
        caller.check("nakadi.config.write")
        assert caller.subject == UNAUTHENTICATED
        assert not caller.is_expired()
    assert source.asked == 0


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "token",
        "Bearer a b",
        "Bearer a,Bearer b",
        "Bearer ä",
        "Bearer a\n",
        "Bearer =a",
        f"Bearer {'x' * (TOKEN_CHARACTERS_MAX + 1)}",
    ],
    ids=lambda header: str(header)[:20],
)
def test_a_malformed_token_is_rejected_without_querying_the_source(clock, header):
    source = Source()
    with pytest.raises(Unauthenticated):
        authentication(source, clock).caller(header)
    assert source.asked == 0


@pytest.mark.parametrize(
    ("realm", "attribute"),
    [("services", "service:alice"), ("/services", "service:alice"), ("employees", "user:alice"), ("", "user:alice")],
)
def test_the_realm_decides_whether_a_uid_is_a_service_or_a_user(clock, realm, attribute):
    """Reference authorization#subjects."""
    source = Source(TokenInfo(uid="alice", scopes=frozenset({"uid"}), realm=realm))
    subject = caller(source, clock, service_realms=frozenset({"services"})).subject
    assert subject.name == "alice"
    assert subject.attributes == {Attribute(*attribute.split(":"))}
    assert not subject.unrestricted


@pytest.mark.parametrize(
    ("mode", "scopes", "realm", "error"),
    [
        (Mode.BASIC, {"uid"}, "", None),
        (Mode.BASIC, {"write"}, "", InsufficientScope),
        (Mode.BASIC, set(), "", InsufficientScope),
        (Mode.REALM, {"uid"}, "/staff", None),
        (Mode.REALM, {"uid"}, "staff2", InsufficientRealm),
        (Mode.REALM, {"uid"}, "", InsufficientRealm),
        (Mode.REALM, {"write"}, "staff", InsufficientScope),
        (Mode.FULL, {"write"}, "", None),
        (Mode.FULL, {"uid"}, "", InsufficientScope),
    ],
)
def test_the_requirements_of_each_mode(clock, mode, scopes, realm, error):
    """Reference common#modes, common#refused-tokens."""
    source = Source(TokenInfo(uid="alice", scopes=frozenset(scopes), realm=realm))
    who = authentication(source, clock, mode, realms=frozenset({"staff"})).caller("Bearer token")
    if error is None:
        who.check("write")
        return
    with pytest.raises(error):
        who.check("write")


def test_a_token_expires_without_querying_the_source(clock):
    source = Source(TokenInfo(uid="alice", scopes=frozenset({"uid"}), expires_at_ms=clock.now_ms() + 1_000))
    who = caller(source, clock)
    clock.advance(999)
    assert not who.is_expired()
    clock.advance(1)
    assert who.is_expired()
    assert source.asked == 1


@pytest.mark.parametrize(
    "then",
    [
        None,
        TokenInfo(uid="bob", scopes=frozenset({"uid"}), realm="employees"),
        TokenInfo(uid="alice", scopes=frozenset({"uid"}), realm="customers"),
        TokenInfo(uid="alice", scopes=frozenset({"read"}), realm="employees"),
    ],
    ids=["revoked", "of another user", "of another realm", "without its scope"],
)
def test_a_changed_token_expires_when_it_is_checked_again(clock, then):
    """Reference streams#right-checks, common#tokens-of-streams."""
    source = Source()
    who = caller(source, clock)
    source.info = then
    clock.advance(int(RECHECK_S * 1000) - 1)
    assert not who.is_expired()
    clock.advance(1)
    assert who.is_expired()


def test_a_valid_token_is_checked_again_at_intervals(clock):
    source = Source()
    who = caller(source, clock)
    for _ in range(300):
        assert not who.is_expired()
        clock.advance(1_000)
    assert source.asked == 300 // RECHECK_S


@pytest.mark.parametrize(("expires_at_ms", "expired"), [(None, True), (END_MS, False)])
def test_while_the_source_is_down_only_tokens_with_a_known_expiry_stay_valid(clock, expires_at_ms, expired):
    """Reference streams#right-checks."""
    source = Source(TokenInfo(uid="alice", scopes=frozenset({"uid"}), expires_at_ms=expires_at_ms))
    who = caller(source, clock)
    source.down = True
    clock.advance(int(RECHECK_S * 1000))
    assert who.is_expired() == expired
    clock.advance(END_MS - clock.now_ms())
    assert who.is_expired()
