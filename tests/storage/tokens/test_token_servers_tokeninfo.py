import pytest

from rioni.domain.errors import TokensUnavailable
from rioni.storage.tokens.sources import ACCEPTED_S, REFUSED_MAX, REFUSED_S, CachedTokens
from rioni.storage.tokens.token_servers import FAILURES_MAX, PAUSE_S, LocalAndRemote, Response, TokenInfoService
from tests.contracts.tokens import ALICE, END_MS, RemoteTokensContract, TokensContract
from tests.support.clock import ManualClock
from tests.support.web_tokens import FakeWeb


LOCAL, REMOTE = "http://localhost:9021/tokeninfo", "https://tokens.example/info"
GOOD = "a-token-of-alice"
ALICES = {"uid": "alice", "scope": ["uid", "read"], "realm": "employees", "token_type": "Bearer"}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def web(clock):
    """A token info service that knows one token, at both URLs."""

    def answer(headers):
        lasts_s = (END_MS - clock.now_ms()) / 1000
        if headers["Authorization"] != f"Bearer {GOOD}" or lasts_s <= 0:
            return Response(400, b'{"error":"invalid_request"}')
        return ALICES | {"expires_in": lasts_s}

    return FakeWeb({LOCAL: answer, REMOTE: answer})


class TestTokenInfoService(TokensContract, RemoteTokensContract):
    @pytest.fixture
    def good(self):
        return GOOD

    @pytest.fixture
    def tokens(self, web, clock):
        return TokenInfoService(LOCAL, web.get, clock)

    @pytest.fixture
    def broken(self, web, clock):
        web.down = True
        return TokenInfoService(LOCAL, web.get, clock)


class TestCachedTokenInfoService(TestTokenInfoService):
    @pytest.fixture
    def tokens(self, web, clock):
        return CachedTokens(TokenInfoService(LOCAL, web.get, clock), clock)

    @pytest.fixture
    def broken(self, web, clock):
        web.down = True
        return CachedTokens(TokenInfoService(LOCAL, web.get, clock), clock)


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        (ALICES, True),
        (ALICES | {"scope": "uid read"}, True),
        (ALICES | {"expires_in": 0}, False),
        (ALICES | {"expires_in": -1}, False),
        (ALICES | {"expires_in": "100"}, False),
        (ALICES | {"expires_in": True}, False),
        (ALICES | {"uid": None}, False),
        (ALICES | {"uid": ""}, False),
        (ALICES | {"uid": 1}, False),
        (ALICES | {"uid": "a\nb"}, False),
        (ALICES | {"realm": ["employees"]}, False),
        ([], False),
        *((Response(status, b""), False) for status in (401, 403, 413, 414, 422, 431)),
    ],
)
def test_an_answer_without_a_user_rejects_the_token(web, clock, answer, accepted):
    """Reference common#token-info."""
    web.pages[LOCAL] = answer
    info = TokenInfoService(LOCAL, web.get, clock).inspect(GOOD)
    assert (info is not None) == accepted
    assert info is None or (info.uid, info.scopes, info.expires_at_ms) == ("alice", ALICE.scopes, None)


@pytest.mark.parametrize(
    "answer", [Response(500, b""), Response(404, b""), Response(302, b""), Response(429, b""), Response(200, b"<")]
)
def test_an_answer_that_does_not_concern_the_token_is_an_error(web, clock, answer):
    web.pages[LOCAL] = answer
    with pytest.raises(TokensUnavailable):
        TokenInfoService(LOCAL, web.get, clock).inspect(GOOD)


@pytest.mark.parametrize("scope", [None, 1, {"uid": 1}, [["uid"]], [1]])
def test_scopes_in_an_unknown_form_are_ignored(web, clock, scope):
    web.pages[LOCAL] = ALICES | {"scope": scope}
    info = TokenInfoService(LOCAL, web.get, clock).inspect(GOOD)
    assert info is not None
    assert not info.scopes - {"uid"} or isinstance(scope, dict)


def test_a_service_that_does_not_answer_is_not_queried_for_a_while(web, clock):
    """Reference common#tokens-unavailable."""
    tokens = TokenInfoService(LOCAL, web.get, clock)
    web.down = True
    for _ in range(FAILURES_MAX * 10):
        with pytest.raises(TokensUnavailable):
            tokens.inspect(GOOD)
    assert len(web.asked) == FAILURES_MAX
    clock.advance(int(PAUSE_S * 1000))
    for _ in range(10):
        with pytest.raises(TokensUnavailable):
            tokens.inspect(GOOD)
    assert len(web.asked) == FAILURES_MAX + 1
    web.down = False
    clock.advance(int(PAUSE_S * 1000))
    for _ in range(10):
        assert tokens.inspect(GOOD) is not None
    assert len(web.asked) == FAILURES_MAX + 11


def test_the_remote_service_is_queried_while_the_local_one_is_down(web, clock):
    """Reference common#token-info."""
    services = [TokenInfoService(url, web.get, clock) for url in (LOCAL, REMOTE)]
    tokens = LocalAndRemote(*services, only_remote=lambda: False)
    assert tokens.inspect(GOOD) is not None
    assert web.asked == [LOCAL]
    web.pages[LOCAL] = Response(500, b"")
    assert tokens.inspect(GOOD) is not None
    assert web.asked[1:] == [LOCAL, REMOTE]
    assert tokens.inspect("another") is None


def test_a_token_rejected_by_the_local_service_is_rejected(web, clock):
    """Reference common#token-info."""
    services = [TokenInfoService(url, web.get, clock) for url in (LOCAL, REMOTE)]
    assert LocalAndRemote(*services, only_remote=lambda: False).inspect("another") is None
    assert web.asked == [LOCAL]


def test_with_the_feature_only_the_remote_service_is_queried(web, clock):
    """Reference common#token-info."""
    services = [TokenInfoService(url, web.get, clock) for url in (LOCAL, REMOTE)]
    assert LocalAndRemote(*services, only_remote=lambda: True).inspect(GOOD) is not None
    assert web.asked == [REMOTE]


def test_answers_are_cached_for_a_while_also_while_the_services_are_down(web, clock):
    """Reference common#token-info."""
    tokens = CachedTokens(TokenInfoService(LOCAL, web.get, clock), clock)
    assert tokens.inspect(GOOD) is not None
    web.down = True
    clock.advance(int(ACCEPTED_S * 1000) - 1)
    assert tokens.inspect(GOOD) is not None
    clock.advance(1)
    with pytest.raises(TokensUnavailable):
        tokens.inspect(GOOD)


def test_a_token_that_has_become_valid_is_accepted_after_a_while(web, clock):
    tokens = CachedTokens(TokenInfoService(LOCAL, web.get, clock), clock)
    page = web.pages[LOCAL]
    web.pages[LOCAL] = Response(401, b"")
    assert tokens.inspect(GOOD) is None
    web.pages[LOCAL] = page
    assert tokens.inspect(GOOD) is None
    assert len(web.asked) == 1
    clock.advance(int(REFUSED_S * 1000))
    assert tokens.inspect(GOOD) is not None


def test_many_invalid_tokens_evict_no_valid_one_from_the_cache(web, clock):
    tokens = CachedTokens(TokenInfoService(LOCAL, web.get, clock), clock)
    tokens.inspect(GOOD)
    for number in range(REFUSED_MAX * 2):
        assert tokens.inspect(f"bad-{number}") is None
    asked = len(web.asked)
    assert tokens.inspect(GOOD) is not None
    assert len(web.asked) == asked


def test_the_cache_contains_no_token_in_plain_text(web, clock):
    tokens = CachedTokens(TokenInfoService(LOCAL, web.get, clock), clock)
    tokens.inspect(GOOD)
    assert ALICES["uid"] in repr(vars(tokens))
    assert GOOD not in repr(vars(tokens))
