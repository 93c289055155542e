"""Commands that publish, copy or read for long ride out an outage that begins with any of their requests."""

import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import httpx
import pytest

from rioni.cli.connections.session import ATTEMPTS
from rioni.client import EventType, Schema, Statistic
from rioni.client.retries import RETRY_S
from tests.support import dead_letters, faulty_way
from tests.support.campaigns import length
from tests.support.faulty_way import LOST, REFUSED, answer, cut, status
from tests.support.server import count_events
from tests.support.waiting import WAIT_S, wait_until


EVENTS = 12
OUTAGE = 8
"""Requests that fail: more than a command makes at its first contact."""
BEGIN_EVERY = length(3, 1)
"""Requests between two that an outage begins with."""
CUT_EVERY = length(397, 1)
"""Bytes between two places at which answers are cut off."""
FAULTS = {
    "refused": REFUSED,
    "lost": LOST,
    "cut": cut(40),
    "unavailable": status(503),
    "asked to come at once": status(503, retry_after_s=0),
    "too many": status(429, retry_after_s=0),
    "gateway": status(502),
}
COMMANDS = {
    "publish": ("publish", "{target}", "--batch", "5"),
    "publish --once": ("publish", "{target}", "--batch", "5", "--once"),
    "copy": ("copy", "{source}", "{target}", "--batch", "5"),
    "tail": ("tail", "{source}", "--no-follow"),
    "tail --last": ("tail", "{source}", "--last", "5", "--no-follow"),
    "search": ("search", "{source}", "--filter", "event.number > 2", "--sort"),
}


class Outcome(NamedTuple):
    """The result of a command."""

    code: int
    said: str
    stored: dict[str, list[int]]


def nothing(_number, _request):
    """No fault."""


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Lets pauses be short."""
    monkeypatch.setattr("rioni.client.retries.WAIT_FIRST_S", 0.001)
    monkeypatch.setattr("rioni.client.retries.WAIT_MAX_S", 0.005)


@pytest.fixture
def way(broker, rioni, monkeypatch):
    with faulty_way.faulty_way(broker.url) as way:
        monkeypatch.setenv("RIONI_URL", way.url)
        yield way


class EventTypes:
    """Creates event types of this test; `made` are their names."""

    def __init__(self, client, name):
        self._client, self._name = client, name
        self.made = []
        self._count = 0

    def __call__(self, count=0):
        name = f"{self._name}-{self._count}"
        self._count += 1
        self.create(name)
        if count:
            self._client.publish(name, [{"number": n, "key": f"key-{n % 5}"} for n in range(count)])
        return name

    def create(self, name):
        self.made.append(name)
        statistic = Statistic(messages_per_minute=1, message_size=1, read_parallelism=2, write_parallelism=2)
        self._client.event_types.create(
            EventType(
                name=name,
                owning_application="shop",
                schema=Schema.json({"properties": {"number": {"type": "integer"}, "key": {"type": "string"}}}),
                default_statistic=statistic,
                partition_strategy="hash",
                partition_key_fields=["key"],
            )
        )


@pytest.fixture
def event_type(client, name):
    return EventTypes(client, name)


LINES = "".join(json.dumps({"number": n, "key": f"key-{n % 5}"}) + "\n" for n in range(EVENTS))


@pytest.fixture
def read(run, broker):
    """The numbers of an event type's events, in the order of each partition."""

    def find(name):
        found = {}
        for line in run("tail", name, "--no-follow", "--json", "--url", broker.url)[1].splitlines():
            entry = json.loads(line)
            found.setdefault(entry["cursor"]["partition"], []).append(entry["event"]["number"])
        return found

    return find


@pytest.fixture
def outcome(rioni, way, event_type, read):
    """Runs a command on a way with faults; returns what it came to, and the requests that it made."""
    source = event_type(EVENTS)

    def run(command, fault_of=nothing):
        target = event_type()
        way.script(lambda number, request: fault_of(number, request.replace(target, "TARGET")))
        code, out, err = rioni(*(each.format(source=source, target=target) for each in command), stdin=LINES)
        said = re.sub(r"in [0-9.]+ s \(.*\)", "", out.replace(target, "TARGET"))
        return Outcome(code, said, read(target)), err.replace(target, "TARGET"), [*way.requests]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_outage_that_begins_at_any_request_changes_nothing(command, fault, outcome):
    expected, _, requests = outcome(command)
    assert expected.code == 0
    others = {}
    # A wrong URL is an error after two seconds, not after two minutes: so the first request does not count.
    for begin in range(1 + random.randrange(BEGIN_EVERY), len(requests), BEGIN_EVERY):
        found, said, _ = outcome(command, lambda number, _, begin=begin: begin <= number < begin + OUTAGE and fault)
        if found != expected:
            others[begin, requests[begin]] = found, said
    assert others == {}


@pytest.mark.parametrize("command", [COMMANDS["publish"], COMMANDS["copy"]], ids=["publish", "copy"])
def test_batches_that_were_stored_in_part_are_completed(command, outcome):
    expected, _, requests = outcome(command)
    batches = sum(map(_publishes, requests))
    assert batches > 2
    for begin in range(batches):
        found, said, _ = outcome(command, _stored_in_part(begin))
        assert found == expected, said


def _stored_in_part(begin):
    """The fault of batches from this one on, between which other requests may come."""
    lost = {"publishing_status": "failed", "step": "publishing", "detail": "timed out"}
    part, numbers = answer(207, [lost, {"publishing_status": "submitted"}]), itertools.count()
    return lambda _, request: _publishes(request) and begin <= next(numbers) < begin + OUTAGE and part


def _publishes(request):
    return request.startswith("POST") and "/events" in request


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_answer_that_is_cut_off_at_any_byte_changes_nothing(command, outcome, way):
    expected, _, requests = outcome(command)
    sizes = dict(way.answered_bytes)
    assert len(sizes) == len(requests)
    others = {}
    for number in range(1, len(requests)):
        for size in range(random.randrange(CUT_EVERY), sizes[number], CUT_EVERY):
            found, said, _ = outcome(command, lambda n, _, number=number, size=size: n == number and cut(size))
            if found != expected:
                others[number, requests[number], size] = found, said
    assert others == {}


@pytest.mark.parametrize("code", [401, 403, 500])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_would_be_refused_again_ends_a_command_at_once(command, code, outcome):
    _, _, requests = outcome(command)
    for begin in range(1, len(requests)):
        found, said, made = outcome(command, lambda number, _, begin=begin: number >= begin and status(code))
        if len(made) <= begin:
            continue  # it needed fewer requests this time
        assert (found.code, said.splitlines()[-1].startswith("Error: ")) == (2, True), said
        # Several partitions are read at the same time.
        assert len(made) <= begin + 4, requests[begin]


@pytest.mark.parametrize(
    "command",
    # One batch after the other: one that the broker gets just between deletion and creation is a 404.
    [COMMANDS["publish"], ("copy", "{source}", "{target}", "--batch", "2", "--partition", "0")],
    ids=["publish", "copy"],
)
def test_an_event_type_that_was_created_again_meanwhile_is_not_the_one_that_was_asked_for(
    command, outcome, client, event_type
):
    published = itertools.count()

    def again(_, request):
        if _publishes(request) and next(published) == 1:
            client.event_types.delete(event_type.made[-1])
            event_type.create(event_type.made[-1])

    found, said, _ = outcome(command, again)
    assert found.code == 2
    assert "TARGET was deleted and created again" in said
    assert "can be continued" not in said


@pytest.mark.parametrize("fault", [REFUSED, LOST], ids=["refused", "lost"])
def test_a_redrive_of_all_rides_out_an_outage_after_its_first_request(fault, broker, event_type, rioni, way):
    name = event_type()
    with httpx.Client(base_url=broker.url, timeout=WAIT_S) as api:
        wanted = {"owning_application": "shop", "event_types": [name], "annotations": dead_letters.KEEPING}
        subscription_id = api.post("/subscriptions", json=wanted).raise_for_status().json()["id"]
        letters = [dead_letters.dead_letter(subscription_id, name, n, {"number": n}) for n in range(EVENTS)]
        dead_letters.write(api, letters)
        way.script(lambda number, _: 1 <= number <= OUTAGE and fault)
        code, _, said = rioni("dead-letters", "redrive", subscription_id, "--all", "--limit", "2")
        assert code == 0, said
        assert len(way.requests) > OUTAGE
        assert count_events(api, name) == EVENTS


@pytest.mark.parametrize("fault", [REFUSED, LOST, status(503)], ids=["refused", "lost", "unavailable"])
def test_an_archive_rides_out_an_outage_after_its_first_request(fault, event_type, rioni, way, tmp_path):
    name = event_type(EVENTS)
    way.script(lambda number, _: 1 <= number <= OUTAGE and fault)
    code, out, said = rioni("archive", "--once", "--to", str(tmp_path / "lake"), "--event-type", name)
    assert (code, out) == (0, f"{name}: {EVENTS} events archived\n"), said
    assert len(way.requests) > OUTAGE


@pytest.mark.parametrize("command", ["archive", "redrive"])
@pytest.mark.parametrize("fault", [REFUSED, status(503)], ids=["refused", "unavailable"])
def test_what_does_not_answer_at_first_is_an_error_at_once(command, fault, rioni, way, tmp_path):
    commands = {
        "archive": ("archive", "--once", "--to", str(tmp_path / "lake"), "--event-type", "orders"),
        "redrive": ("dead-letters", "redrive", "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"),
    }
    way.script(lambda *_: fault)
    code, _, said = rioni(*commands[command])
    assert (code, "Error: " in said) == (2, True), said
    assert len(way.requests) <= ATTEMPTS + 2  # an archive tells twice what it does


@pytest.fixture
def started(way, tmp_path):
    """Starts a command on the way in a separate process; it has the lines on standard input."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text(LINES)
    environment = os.environ | {"RIONI_URL": way.url, "RIONI_CONTEXTS": str(tmp_path / "contexts.toml")}
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            command = [sys.executable, "-m", "rioni", *arguments]
            stdin, pipes = stack.enter_context(lines.open()), {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(command, env=environment, stdin=stdin, text=True, **pipes))
            stack.callback(process.kill)
            return process

        yield start


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        *((command, signal.SIGINT) for command in COMMANDS.values()),
        *itertools.product([COMMANDS["publish"], COMMANDS["copy"], COMMANDS["tail"]], [signal.SIGTERM, signal.SIGHUP]),
    ],
)
def test_a_signal_ends_what_waits_for_a_broker(command, asked, way, event_type, started):
    source, target = event_type(EVENTS), event_type()
    failed = []

    def fails(_, request):
        # From the first stream or batch on, so that it is not the main thread alone that waits.
        if failed or "/events" in request:
            failed.append(request)
        return bool(failed) and REFUSED

    way.script(fails)
    process = started(*(each.format(source=source, target=target) for each in command))
    wait_until(lambda: len(failed) > ATTEMPTS)
    process.send_signal(asked)
    asked_s = time.monotonic()
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + asked, err
    assert time.monotonic() - asked_s < RETRY_S / 2
    assert "Traceback" not in err


def test_sigterm_ends_an_archive_that_waits_for_a_broker(way, started, tmp_path):
    failed = []

    def fails(_, request):
        if "/jobs" not in request:
            failed.append(request)
        return REFUSED

    way.script(fails)
    process = started("archive", "--to", str(tmp_path / "lake"), "--event-type", "orders")
    wait_until(lambda: len(failed) > ATTEMPTS)
    process.send_signal(signal.SIGTERM)
    asked_s = time.monotonic()
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert time.monotonic() - asked_s < RETRY_S / 2
    assert "orders is not archived" in err


@pytest.mark.parametrize("begins", ["/events", "/partitions"])
def test_a_copy_that_follows_rides_out_an_outage_while_nothing_comes(begins, way, event_type, started, client, read):
    source, target = event_type(EVENTS), event_type()
    way.script(nothing)
    process = started("copy", source, target, "--follow")
    wait_until(lambda: sum(map(len, read(target).values())) == EVENTS)
    failed = []

    def fails(_, request):
        if failed or begins in request:
            failed.append(request)
        return 0 < len(failed) <= OUTAGE and REFUSED

    way.script(fails)
    if begins == "/events":
        client.publish(source, [{"number": EVENTS, "key": "key-0"}])
    wait_until(lambda: len(failed) > OUTAGE)
    client.publish(source, [{"number": EVENTS + 1, "key": "key-0"}])
    expected = read(source)
    wait_until(lambda: read(target) == expected)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
