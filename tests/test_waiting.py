"""Tests wait in one way: for a condition, with the one deadline of `tests.support.waiting`."""

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from tests.support import waiting
from tests.support.server import Stream
from tests.support.waiting import WAIT_S, wait_until


ROOT = Path(__file__).parents[1]


class Lines(httpx.SyncByteStream):
    """The lines of a stream, then its end, or nothing more within the timeout."""

    def __init__(self, *batches, ends=True):
        self._batches, self._ends = batches, ends

    def __iter__(self):
        for batch in self._batches:
            yield json.dumps(batch).encode() + b"\n"
        if not self._ends:
            raise httpx.ReadTimeout("")


def stream(*batches, ends=True):
    return Stream(httpx.Response(200, stream=Lines(*batches, ends=ends)))


def filled(*numbers):
    return {"cursor": {"offset": str(numbers[-1])}, "events": [{"number": number} for number in numbers]}


KEEP_ALIVE = {"cursor": {"offset": "0"}}


@pytest.fixture
def hasty(monkeypatch):
    """Lets each wait fail soon."""
    monkeypatch.setattr(waiting, "WAIT_S", 0.02)


def test_a_wait_returns_what_its_condition_found():
    found = iter(["", 0, None, "it"])
    assert wait_until(lambda: next(found)) == "it"


@pytest.mark.usefixtures("hasty")
def test_a_wait_that_fails_says_what_was_awaited_and_what_was_last_seen():
    items = ["a"]
    with pytest.raises(AssertionError) as failed:
        wait_until(lambda: items[1:])
    said = str(failed.value)
    assert "wait_until(lambda: items[1:])" in said
    assert "last seen: []\nitems = ['a']" in said
    with pytest.raises(AssertionError, match="last seen: the log"):
        wait_until(lambda: items[1:], lambda: "the log")


def test_events_are_awaited_over_any_number_of_batches():
    opened = stream(KEEP_ALIVE, filled(1), KEEP_ALIVE, KEEP_ALIVE, filled(2, 3), KEEP_ALIVE, filled(4))
    assert [each["number"] for each in opened.events(2)] == [1, 2, 3]
    assert opened.filled_batch() == filled(4)


READS = {
    "3 events": lambda opened: opened.events(3),
    "a batch with events": lambda opened: [opened.filled_batch() for _ in range(3)],
    "another batch": lambda opened: [opened.batch() for _ in range(4)],
    "event 19": lambda opened: opened.events_until(lambda events: {"number": 19} in events, "event 19"),
}
"""By what a failure says was awaited."""


class Connection(httpx.SyncByteStream):
    """Closed, as that of httpx, by an iterator that ends or is dropped."""

    closed = False

    def __iter__(self):
        try:
            yield b"{}\n{}\n"
            yield b"{}\n"
        finally:
            self.closed = True


def test_a_stream_stays_open_when_nobody_reads_on():
    response = httpx.Response(200, stream=Connection())
    Stream(response).line()
    assert not response.stream.closed


@pytest.mark.parametrize("awaited", READS)
@pytest.mark.parametrize(("ends", "reason"), [(True, "the stream has ended"), (False, "nothing more came")])
def test_a_stream_that_ends_or_hangs_before_what_was_awaited_fails_with_what_came(awaited, ends, reason):
    with pytest.raises(AssertionError, match=f"{reason}.*: {awaited}") as failed:
        READS[awaited](stream(KEEP_ALIVE, filled(17), filled(18), ends=ends))
    said = str(failed.value)
    assert '"number": 17' in said
    assert '"number": 18' in said


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("read", ["events", "filled_batch", "batches"])
def test_keep_alives_do_not_prolong_a_wait(read):
    class Endless(httpx.SyncByteStream):
        def __iter__(self):
            while True:
                yield json.dumps(KEEP_ALIVE).encode() + b"\n"

    with pytest.raises(AssertionError, match="it did not come within"):
        getattr(Stream(httpx.Response(200, stream=Endless())), read)(*([1] if read == "events" else []))


# --- no test waits in another way ---

NOTHING = "a time in which nothing may happen: a slow machine does not make it happen"
CHANCE = "the moment of a kill or a fault, by chance or by the plan of a campaign"
PACE = "the pace of a simulated client, server or connection"
TIMES_OUT = "what is awaited must time out"
OWN_LOOP = "a loop on a hub of gevent, in a process whose parent waits, or within a timeout"
WAITING = "tests/support/waiting.py"

MAY_WAIT_OTHERWISE: Mapping[str, str] = {
    WAITING: "the one way to wait",
    "tests/acceptance/test_deadlines.py": PACE,
    "tests/acceptance/test_outage_logs.py": CHANCE,
    "tests/acceptance/test_postgresql.py": TIMES_OUT,
    "tests/installation/test_pools.py": NOTHING,
    "tests/server/test_watchdog.py": OWN_LOOP,
    "tests/bulk/test_rebuild.py": PACE,
    "tests/bulk/test_rebuild_kill.py": CHANCE,
    "tests/cli/events/test_copy.py": CHANCE,
    "tests/client/_async/test_connections.py": TIMES_OUT,
    "tests/client/_async/test_consumer.py": PACE,
    "tests/client/_async/test_consumer_kills.py": CHANCE,
    "tests/client/_async/test_consumer_time.py": "in virtual time",
    "tests/console/test_login_oidc.py": PACE,
    "tests/contracts/closed_topics.py": PACE,
    "tests/contracts/signals.py": NOTHING,
    "tests/domain/streaming/test_session.py": "in virtual time",
    "tests/domain/streaming/test_session_dead_letters.py": "in virtual time",
    "tests/domain/streaming/test_session_heartbeats.py": "in virtual time",
    "tests/domain/streaming/test_session_hidden.py": "in virtual time",
    "tests/http/connection/test_listener_balance.py": PACE,
    "tests/patches/test_standard_library.py": NOTHING,
    "tests/properties/test_faults.py": CHANCE,
    "tests/properties/test_kpi_kill.py": CHANCE,
    "tests/properties/test_outages.py": CHANCE,
    "tests/properties/test_server_kill.py": CHANCE,
    "tests/properties/test_soak.py": "looks for the lowest use of memory over some seconds",
    "tests/properties/test_stream_chaos.py": CHANCE,
    "tests/properties/test_switching_kill.py": CHANCE,
    "tests/storage/embedded/gevent_publisher.py": OWN_LOOP,
    "tests/storage/embedded/test_signals.py": NOTHING,
    "tests/storage/gevent_log_follower.py": OWN_LOOP,
    "tests/storage/gevent_log_writer.py": OWN_LOOP,
    "tests/storage/kafka/gevent_topics.py": OWN_LOOP,
    "tests/storage/kafka/test_delivery.py": "times of the protocol of Kafka",
    "tests/storage/kafka/test_events.py": PACE,
    "tests/storage/kafka/test_events_faults.py": NOTHING,
    "tests/storage/kafka/test_tail_follower.py": TIMES_OUT,
    "tests/storage/tokens/test_token_servers_http_get.py": PACE,
    "tests/storage/zookeeper/gevent_worker.py": OWN_LOOP,
    "tests/storage/zookeeper/test_session.py": PACE,
    "tests/storage/zookeeper/test_coordination_faults.py": NOTHING,
    "tests/support/client_consumer.py": PACE,
    "tests/support/consumer.py": PACE,
    "tests/support/firefox_relay.py": "a separate program, which imports nothing of the tests",
    "tests/support/hub_watch.py": "looks at the hub in short intervals, which is what it measures",
    "tests/support/outages.py": PACE,
    "tests/support/recording.py": PACE,
    "tests/support/simulated_broker.py": PACE,
    "tests/support/tcp_proxy.py": "a proxy, whose client waits",
    "tests/server/test_processes_signals.py": CHANCE,
}
"""Modules that sleep, or wait for less than `WAIT_S`, and why that is no wait for what a busy machine delays."""

POSITIONAL = {"wait", "result", "join", "exception"}
"""Methods whose first argument is a timeout."""
OF_HTTPX = {"get", "post", "put", "patch", "delete", "head", "options", "request", "stream", "Client", "AsyncClient"}
RAW = {"iter_lines", "iter_bytes", "iter_raw", "iter_text"}


def _calls(source: str) -> Iterator[tuple[str, ast.Call, dict[str, object]]]:
    """The calls in a module, each with the name of the function, and the constants of the module."""
    tree = ast.parse(source)
    constants = {
        each.targets[0].id: each.value.value
        for each in tree.body
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Name)
        and isinstance(each.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", ""), node, constants


def _other_waits(source: str) -> Iterator[str]:
    """The sleeps of a module, and its waits that are shorter than the one deadline."""
    for name, call, constants in _calls(source):
        if name == "sleep":
            if not (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0):
                yield ast.unparse(call)
            continue
        given = [each.value for each in call.keywords if each.arg == "timeout"]
        if not given and _waits_for_seconds(name, call):
            yield ast.unparse(call)
        if name in POSITIONAL and isinstance(call.func, ast.Attribute):
            given += call.args[:1]
        for each in given:
            value = each.value if isinstance(each, ast.Constant) else constants.get(getattr(each, "id", ""))
            if isinstance(value, int | float) and 0 < value < WAIT_S:
                yield ast.unparse(call)


def _waits_for_seconds(name: str, call: ast.Call) -> bool:
    """Whether it is a call of httpx, which waits for five seconds unless it sets another time."""
    function = call.func
    of_httpx = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "httpx"
    return of_httpx and name in OF_HTTPX and all(each.arg is not None for each in call.keywords)


def _unread_ends(source: str) -> Iterator[str]:
    """Calls by which a module reads an answer's next line, and would raise StopIteration at the answer's end."""
    raw = {
        target.id
        for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.Assign) and _is_raw(each.value)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for name, call, _ in _calls(source):
        if name == "next" and len(call.args) == 1 and (_is_raw(call.args[0]) or getattr(call.args[0], "id", "") in raw):
            yield ast.unparse(call)


def _is_raw(read: ast.expr) -> bool:
    """Whether it gives an answer piece by piece."""
    return isinstance(read, ast.Call) and isinstance(read.func, ast.Attribute) and read.func.attr in RAW


def _modules() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.glob("tests/**/*.py"))}


def test_tests_wait_for_conditions_with_the_one_deadline():
    found = {name: [*_other_waits(source)] for name, source in _modules().items()}
    other = {name: waits for name, waits in found.items() if waits}
    assert {name: waits for name, waits in other.items() if name not in MAY_WAIT_OTHERWISE} == {}, (
        "use wait_until or WAIT_S of tests/support/waiting.py, or say in MAY_WAIT_OTHERWISE what else it is"
    )
    assert MAY_WAIT_OTHERWISE.keys() - other.keys() == set(), "take it out of MAY_WAIT_OTHERWISE"


def test_tests_read_streams_so_that_an_early_end_is_told():
    found = {name: [*_unread_ends(source)] for name, source in _modules().items()}
    assert {name: reads for name, reads in found.items() if reads} == {}, "use Stream, or give next a default"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("time.sleep(0.1)", True),
        ("gevent.sleep(PAUSE_S)", True),
        ("event.wait(20)", True),
        ("assert future.result(SOON_S)", True),
        ("process.communicate(timeout=60)", True),
        ("httpx.get(url, timeout=30)", True),
        ("httpx.get(url)", True),
        ("httpx.Client(base_url=url)", True),
        ("httpx.Client(base_url=url, timeout=WAIT_S)", False),
        ("httpx.Client(**options)", False),
        ("gevent.sleep(0)", False),
        ("event.wait(WAIT_S)", False),
        ("event.wait(0)", False),
        ("process.communicate(timeout=200)", False),
        ("', '.join(names)", False),
    ],
)
def test_other_waits_are_recognised(source, found):
    assert bool([*_other_waits(f"SOON_S = 5\n{source}")]) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("next(response.iter_lines())", True),
        ("lines = response.iter_lines()\nfirst = next(lines)", True),
        ("lines = response.iter_lines()\nnext(lines, None)", False),
        ("next(response.iter_lines(), None)", False),
        ("next(numbers)", False),
    ],
)
def test_reads_that_hide_an_early_end_are_recognised(source, found):
    assert bool([*_unread_ends(source)]) == found
