"""The outage of a store is a few lines in the log, whatever tries again and again meanwhile."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
from confluent_kafka import KafkaException
from structlog.testing import capture_logs

from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.client_activity import ActivityTracker, DeniedRequests
from rioni.commands.timelines import topics
from rioni.config import logs as failure_log
from rioni.config.logs import EVERY_S, LINES_MAX, OUTAGES_MAX, FailureLog, Outages, SharedFailure, forget_failures
from rioni.console.login import Provider, ProviderFailed
from rioni.domain.errors import TokensUnavailable, Unavailable
from rioni.server.console import _note_login
from rioni.storage.tokens.jwt_tokens import FETCH_AGAIN_S, KeySet
from rioni.storage.tokens.token_servers import PAUSE_S, Response, TokenInfoService
from rioni.storage.tokens.tokens_file import LOOK_EVERY_S, TokensFile
from tests.support.clock import ManualClock


ATTEMPTS = 358


@pytest.fixture
def clock(monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr(failure_log, "time", clock)
    return clock


def outage(text: str = "PostgreSQL is away") -> Unavailable:
    """An error as adapters raise it: from the driver's error, which has its own cause."""
    unavailable, driver = Unavailable(text), RuntimeError("the driver's error")
    unavailable.__cause__, driver.__cause__ = driver, OSError("connection refused")
    return unavailable


class _Store:
    """A store that is unavailable until `works`."""

    def __init__(self) -> None:
        self.works = False

    def __getattr__(self, _name: str):
        def call(*_args: object):
            if not self.works:
                raise outage()

        return call


def directly(function, *args):
    return function(*args)


def activity(store: _Store, clock: ManualClock):
    watched = ActivityTracker(store, clock, directly)

    def attempt():
        watched.record("stream", "a", "user:jane", 1)
        clock.advance(60_000)
        watched.tick()

    return attempt


def denials(store: _Store, clock: ManualClock):
    watched = DeniedRequests(store, clock, directly)

    def attempt():
        watched.record(403, "GET", "/", subject="user:jane", address="::1", user_agent="", flow_id="")
        clock.advance(60_000)
        watched.tick()

    return attempt


def jobs(store: _Store, clock: ManualClock):
    runner = LoggedJobRunner()

    def attempt():
        clock.advance(1_000)
        runner.run("a job", store.work)

    return attempt


def _get(store: _Store):
    """A server that is asked over HTTP."""

    def get(_url: str, _headers: object) -> Response:
        if not store.works:
            raise TokensUnavailable("PostgreSQL is away")
        return Response(200, b'{"keys": []}')

    return get


def _asked_every(clock: ManualClock, pause_s: float, ask: Callable[[], object]):
    """Asks for tokens or keys once more, after a pause."""

    def attempt():
        clock.advance(int(1_000 * pause_s))
        with contextlib.suppress(TokensUnavailable):
            ask()

    return attempt


def token_service(store: _Store, clock: ManualClock):
    asked = TokenInfoService("https://tokens", _get(store), clock)
    return _asked_every(clock, PAUSE_S, lambda: asked.inspect("token"))


def keys(store: _Store, clock: ManualClock):
    asked = KeySet("https://issuer", "https://issuer/keys", _get(store), clock)
    return _asked_every(clock, FETCH_AGAIN_S, lambda: asked.find("key", "RS256"))


def tokens_file(store: _Store, clock: ManualClock):
    def read(*_args: object):
        if not store.works:
            raise outage()
        return (), {}

    with contextlib.ExitStack() as works:
        store.works = True
        works.callback(setattr, store, "works", False)
        asked = TokensFile(Path("tokens.toml"), clock, read)
    return _asked_every(clock, LOOK_EVERY_S, lambda: asked.inspect("token"))


def deleted_topics(store: _Store, _clock: ManualClock):
    class _Stores:
        of = staticmethod(lambda _id: store)

    owner = SimpleNamespace(topic="topic", storage_id="default")
    return lambda: topics._delete(owner, SimpleNamespace(stores=_Stores))


def logins(store: _Store, _clock: ManualClock):
    asked = Provider("https://issuer", "rioni", None, "openid", "id_token", note_outcome=_note_login)
    endpoints = {"authorization_endpoint": "https://issuer/authorize"}
    asked._fetched = lambda: (endpoints, "") if store.works else ({}, "PostgreSQL is away")

    def attempt():
        asked._known_until_s = 0.0
        with contextlib.suppress(ProviderFailed):
            asked.begin("https://rioni/back", "/console")

    return attempt


@pytest.mark.parametrize("loop", [activity, denials, jobs, token_service, keys, tokens_file, deleted_topics, logins])
def test_each_loop_says_once_a_minute_that_a_store_is_unavailable_and_once_that_it_works_again(clock, loop):
    store = _Store()
    attempt = loop(store, clock)
    with capture_logs() as lines:
        begun_s = clock.monotonic()
        for _ in range(ATTEMPTS):
            attempt()
        minutes = (clock.monotonic() - begun_s) / EVERY_S
        failures = [*lines]
        assert 1 <= len(failures) <= minutes + 1
        (reason,) = {line["reason"] for line in failures}
        assert reason.endswith("PostgreSQL is away")
        assert not [line for line in failures if line["exc_info"]]
        assert len(failures) + sum(line.get("left_out", 0) for line in failures) <= ATTEMPTS
        store.works = True
        for _ in range(3):
            attempt()
        (again,) = lines[len(failures) :]
    assert (again["event"], again["failures"]) == ("works again", ATTEMPTS)


@pytest.mark.parametrize(
    ("ex", "traceback"),
    [(outage(), False), (KafkaException("away"), False), (KeyError("ours"), True)],
    ids=["unavailable", "driver", "ours"],
)
def test_only_errors_of_our_own_have_a_traceback(clock, ex, traceback):
    with capture_logs() as lines:
        FailureLog(structlog.get_logger(), KafkaException).failed("it failed", ex)
    assert [bool(line["exc_info"]) for line in lines] == [traceback]


def test_texts_that_change_with_each_attempt_are_no_flood(clock):
    log = FailureLog(structlog.get_logger())
    with capture_logs() as lines:
        for number in range(ATTEMPTS):
            log.failed("it failed", outage(f"attempt {number}"))
        assert len(lines) == LINES_MAX
        clock.advance(int(EVERY_S * 1_000))
        log.failed("it failed", outage("later"), of="")
    assert lines[-1]["left_out"] == ATTEMPTS - LINES_MAX


def test_all_that_needs_a_store_says_together_once_that_it_is_unavailable_and_that_it_works_again(clock):
    logs = [FailureLog(structlog.get_logger()) for _ in range(20)]
    with capture_logs() as lines:
        for _ in range(2):
            for number, log in enumerate(logs):
                log.failed(f"{number} failed", outage())
                log.failed(f"{number} failed too", outage("Kafka is away"))
        assert [line["reason"] for line in lines] == ["PostgreSQL is away", "Kafka is away"]
        clock.advance(int(EVERY_S * 1_000))
        logs[7].failed("7 failed", outage())
        assert [line["event"] for line in lines[2:]] == ["7 failed"]
        for number, log in enumerate(logs):
            log.succeeded(f"{number} failed")
        assert [(line["event"], line["after"]) for line in lines[3:]] == [("works again", "0 failed")]
        logs[3].failed("3 failed", outage())
        assert lines[-1]["event"] == "3 failed"


@pytest.mark.parametrize("ex", [outage(), KeyError("ours")])
def test_what_comes_and_goes_is_no_flood(clock, ex):
    log = FailureLog(structlog.get_logger())
    with capture_logs() as lines:
        for _ in range(ATTEMPTS):
            log.failed("it failed", ex)
            log.succeeded("it failed")
    assert [line["event"] for line in lines].count("it failed") == LINES_MAX
    assert len(lines) == 2 * LINES_MAX


def test_reasons_without_end_are_no_flood_of_memory(clock):
    known = Outages()
    assert all(known.of(f"reason {number}").is_due("", clock.monotonic()) for number in range(3 * OUTAGES_MAX))
    assert len(known._known) == OUTAGES_MAX


def test_a_round_says_that_it_works_again_when_nothing_of_it_fails():
    log, away = FailureLog(structlog.get_logger()), {"a", "b"}

    def go_round():
        with log.round("it failed") as attempt:
            for name in "abc":
                with attempt(name=name):
                    if name in away:
                        raise outage(f"{name} is away")

    with capture_logs() as lines:
        go_round()
        away.remove("a")
        go_round()
        assert [line["name"] for line in lines] == ["a", "b"]
        away.clear()
        go_round()
        go_round()
    assert [line["event"] for line in lines[2:]] == ["works again"]


def test_what_never_failed_does_not_work_again():
    with capture_logs() as lines, contextlib.suppress(Unavailable):
        FailureLog(structlog.get_logger()).succeeded("it failed")
    assert lines == []


def test_a_line_has_the_cause_that_only_the_operator_may_see(clock):
    unavailable = outage()
    unavailable.add_note("connection to db.example\n\tfailed")
    with capture_logs() as lines:
        FailureLog(structlog.get_logger()).failed("it failed", unavailable)
    assert [(line["reason"], line["cause"]) for line in lines] == [
        ("PostgreSQL is away", "connection to db.example failed")
    ]


def test_all_failures_of_the_process_can_be_forgotten(clock):
    logs = [FailureLog(structlog.get_logger()) for _ in range(2)]
    with capture_logs() as lines:
        logs[0].failed("it failed", outage())
        logs[1].failed("it failed too", KeyError("ours"))
        forget_failures()
        logs[0].succeeded("it failed")
        logs[1].succeeded("it failed too")
        logs[1].failed("it failed too", outage())
    assert [line["event"] for line in lines] == ["it failed", "it failed too", "it failed too"]


def test_processes_that_fail_one_after_the_other_say_so_once_a_minute_together(clock):
    clock.advance(1_000)
    with capture_logs() as lines:
        shared = SharedFailure(structlog.get_logger(), "it failed")
        shared.succeeded()
        if (child := os.fork()) == 0:
            shared.failed(outage())
            os._exit(0)
        os.waitpid(child, 0)
        shared.failed(outage())
        assert lines == []
        clock.advance(int(EVERY_S * 1_000))
        for _ in range(2):
            shared.failed(outage())
        for _ in range(2):
            shared.succeeded()
    assert [line["event"] for line in lines] == ["it failed", "works again"]
