"""Tokens that no source accepts keep none out that one accepts, whatever they make a token info service do."""

import contextlib
import threading

import pytest

from rioni.domain.access.authorization import TokenInfo
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.host import CLIENT
from rioni.storage.tokens.sources import ACCEPTED_S, QUESTIONS_MAX, QUESTIONS_OF_CLIENT_MAX, CachedTokens
from rioni.storage.tokens.token_servers import FAILURES_MAX, Response, TokenInfoService
from tests.support.clock import ManualClock
from tests.support.waiting import WAIT_S


URL = "http://localhost:9021/tokeninfo"
GOOD, NEW = "a-token-of-alice", "a-new-token-of-alice"
INFO = b'{"uid": "alice", "scope": ["uid"], "realm": "employees"}'
OF_THE_TOKEN = (400, 401, 403, 413, 414, 422, 431)
OF_THE_ADDRESS = (302, 404, 405, 429)


@pytest.fixture
def clock():
    return ManualClock()


def service(clock, to_strangers):
    """A service that knows two tokens; it answers all others with a status, or not at all."""

    def get(_url, headers):
        if headers["Authorization"].removeprefix("Bearer ") in (GOOD, NEW):
            return Response(200, INFO)
        if to_strangers is None:
            raise TokensUnavailable("the connection was reset")
        return Response(to_strangers, b"")

    return CachedTokens(TokenInfoService(URL, get, clock), clock)


def send_unknown(tokens):
    """Ask for more unknown tokens than a circuit breaker lets fail."""
    for number in range(FAILURES_MAX * 3):
        with contextlib.suppress(TokensUnavailable):
            assert tokens.inspect(f"unknown-{number}") is None


@pytest.mark.parametrize("status", [*OF_THE_TOKEN, *OF_THE_ADDRESS])
def test_what_a_service_says_of_one_token_is_never_taken_for_a_failure(clock, status):
    tokens = service(clock, status)
    send_unknown(tokens)
    assert tokens.inspect(NEW) is not None


@pytest.mark.parametrize("status", OF_THE_TOKEN)
def test_a_token_that_the_service_does_not_take_is_refused(clock, status):
    assert service(clock, status).inspect("x" * 16_000) is None


@pytest.mark.parametrize("to_strangers", [*OF_THE_TOKEN, *OF_THE_ADDRESS, 500, 503, None])
def test_known_tokens_go_on_whatever_unknown_ones_make_the_service_do(clock, to_strangers):
    tokens = service(clock, to_strangers)
    assert tokens.inspect(GOOD) is not None
    send_unknown(tokens)
    assert tokens.inspect(GOOD) is not None
    clock.advance(int(ACCEPTED_S * 1000))
    send_unknown(tokens)
    assert tokens.inspect(GOOD) is not None


def ask_from(client, tokens, token):
    """Ask for a token that a client has sent."""
    before = CLIENT.set(client)
    try:
        return tokens.inspect(token)
    finally:
        CLIENT.reset(before)


@pytest.mark.parametrize("to_strangers", [500, 503, None])
def test_a_new_token_is_accepted_whatever_unknown_ones_of_other_clients_make_the_service_do(clock, to_strangers):
    tokens = service(clock, to_strangers)
    for _ in range(3):
        send_unknown(tokens)
        assert ask_from("alice", tokens, NEW) is not None
        clock.advance(int(ACCEPTED_S * 1000))


class SlowForStrangers:
    """A source that accepts one token at once, and lets all others wait."""

    def __init__(self):
        self.asked, self.go_on = threading.Semaphore(0), threading.Event()

    def inspect(self, token):
        if token == GOOD:
            return TokenInfo(uid="alice")
        self.asked.release()
        assert self.go_on.wait(WAIT_S)
        return None

    def is_over(self, _token):
        return False


def test_unknown_tokens_that_take_long_leave_room_for_known_ones(clock):
    source = SlowForStrangers()
    tokens = CachedTokens(source, clock)
    assert tokens.inspect(GOOD) is not None
    threads = [
        threading.Thread(target=ask_from, args=(f"client-{number}", tokens, f"unknown-{number}"), daemon=True)
        for number in range(QUESTIONS_MAX)
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert source.asked.acquire(timeout=WAIT_S)
        clock.advance(int(ACCEPTED_S * 1000))
        assert tokens.inspect(GOOD) is not None
    finally:
        source.go_on.set()
        for thread in threads:
            thread.join(WAIT_S)


def test_unknown_tokens_of_one_client_leave_room_for_new_ones_of_others(clock):
    source = SlowForStrangers()
    tokens = CachedTokens(source, clock)
    threads = [
        threading.Thread(target=ask_from, args=("stranger", tokens, f"unknown-{number}"), daemon=True)
        for number in range(2 * QUESTIONS_MAX)
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in range(QUESTIONS_OF_CLIENT_MAX):
            assert source.asked.acquire(timeout=WAIT_S)
        assert ask_from("alice", tokens, GOOD) is not None
        assert not source.asked.acquire(blocking=False)
    finally:
        source.go_on.set()
        for thread in threads:
            thread.join(WAIT_S)


@pytest.mark.parametrize("asked_again", [False, True])
def test_a_token_is_known_to_have_expired_once_it_was_accepted(clock, asked_again):
    end_ms = clock.now_ms() + 10_000
    infos = [TokenInfo(uid="alice", expires_at_ms=end_ms), None]
    source = SlowForStrangers()
    source.inspect = lambda _token: infos.pop(0)
    tokens = CachedTokens(source, clock)
    assert tokens.inspect(GOOD) is not None
    assert not tokens.is_over(GOOD)
    clock.advance(int(ACCEPTED_S * 1000) if asked_again else 10_000)
    assert tokens.inspect(GOOD) is None
    assert tokens.is_over(GOOD)
    assert not tokens.is_over("unknown")
