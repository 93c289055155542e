"""`rioni copy`: what is copied, and that nothing is twice or missing when the process is killed."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from rioni.client import EventType, Schema, Statistic
from rioni.testing import Broker
from tests.support.campaigns import length
from tests.support.waiting import wait_until


KILLS = length(3, 200)
EVENTS = 600
"""Published before each of them: more than is copied in the meantime, to begin with."""


@pytest.fixture
def event_type(client, name):
    """Creates event types with three partitions, and events with numbers."""

    def create(count=0, suffix=""):
        statistic = Statistic(messages_per_minute=1, message_size=1, read_parallelism=3, write_parallelism=3)
        client.event_types.create(
            EventType(
                name=f"{name}{suffix}",
                owning_application="shop",
                schema=Schema.json({"properties": {"number": {"type": "integer"}, "key": {"type": "string"}}}),
                default_statistic=statistic,
                partition_strategy="hash",
                partition_key_fields=["key"],
            )
        )
        if count:
            events = [{"number": number, "key": f"key-{number % 7}"} for number in range(count)]
            client.publish(f"{name}{suffix}", events)
        return f"{name}{suffix}"

    return create


@pytest.fixture
def read(rioni):
    """The numbers of an event type's events, in the order of each partition."""

    def run(name):
        found = {}
        for line in rioni("tail", name, "--no-follow", "--json")[1].splitlines():
            entry = json.loads(line)
            found.setdefault(entry["cursor"]["partition"], []).append(entry["event"]["number"])
        return found

    return run


def test_events_are_copied_to_an_event_type_that_is_made(rioni, event_type, read, snapshot):
    source = event_type(50)
    target = f"{source}-copy"
    code, _, err = rioni("copy", source, target)
    assert code == 2
    assert "--create makes one like" in err
    code, out, err = rioni("copy", source, target, "--create", "--filter", "event.number < 20", "--json")
    assert (code, err) == (0, f"The event type {target} is made.\n")
    snapshot("copy", out, target=target, source=source)
    assert read(target) == {name: [n for n in numbers if n < 20] for name, numbers in read(source).items()}
    code, out, _ = rioni("copy", source, target, "--since", "1h", "--partition", "0")
    count = len(read(source)["0"])
    assert out == f"{count} events copied to {target}; the target has grown by {count}.\n"


def test_events_are_copied_to_another_broker(rioni, broker, event_type, read):
    source = event_type(5)
    with Broker() as other:
        assert rioni("context", "add", "one", "--url", broker.url)[0] == 0
        assert rioni("context", "add", "other", "--url", other.url)[0] == 0
        arguments = ("copy", source, source, "--from-context", "one")
        assert rioni(*arguments, "--to-context", "other", "--create", "--state", "state")[0] == 0
        assert rioni(*arguments, "--to-url", other.url, "--state", "state")[0] == 0
        expected = read(source)
        copied = rioni("tail", source, "--no-follow", "--context", "other")[1]
        assert len(copied.splitlines()) == 5 == sum(map(len, expected.values()))
    code, _, err = rioni(*arguments, "--to-context", "one", "--to-url", broker.url)
    assert code == 2
    assert "Name the broker of the target once" in err


def test_a_copy_that_goes_on_tells_apart_what_it_and_earlier_runs_have_copied(rioni, client, event_type, tmp_path):
    source, target = event_type(5), event_type(suffix="-copy")
    command = ("copy", source, target, "--state", str(tmp_path / "state"))
    assert rioni(*command)[1] == f"5 events copied to {target}; the target has grown by 5.\n"
    client.publish(source, [{"number": n, "key": "a"} for n in range(2)])
    found = f"2 events copied to {target}; by all runs: 7 copied; the target has grown by 7.\n"
    assert rioni(*command)[1] == found
    told = json.loads(rioni(*command, "--json")[1])
    assert (told["copied"], told["copied_before"], told["target_growth"]) == (7, 7, 7)


def test_an_event_type_is_not_copied_to_itself(rioni, event_type):
    source = event_type()
    assert "the same event type" in rioni("copy", source, source)[2]


def test_refused_events_are_named_and_written_to_a_file(rioni, client, event_type, name):
    source = event_type(4)
    target = f"{name}-narrow"
    schema = {"properties": {"key": {"type": "string"}, "number": {"enum": [0, 1, 3]}}}
    client.event_types.create(EventType(name=target, owning_application="shop", schema=Schema.json(schema)))
    arguments = ("copy", source, target, "--state", "state")
    code, _, err = rioni(*arguments)
    assert code == 1
    assert ": validating: " in err
    assert "--continue goes on without it" in err
    code, out, _ = rioni(*arguments, "--continue", "--rejected", "rejected.jsonl")
    assert code == 1
    # Some of them by the first run, as partitions are copied at the same time.
    assert re.search(r"\b3 (events )?copied", out), out
    assert "1 refused" in out
    (refused,) = map(json.loads, Path("rejected.jsonl").read_text().splitlines())
    assert refused["event"]["number"] == 2
    code, _, err = rioni("copy", source, target, "--continue", "--rejected", "/dev/full")
    assert (code, err.splitlines()[-1]) == (2, "Error: /dev/full can't be written: No space left on device.")


@pytest.mark.parametrize("refused", [0, 1, 6, 9])
def test_the_events_before_a_refused_one_are_copied_and_counted(rioni, client, event_type, name, refused):
    """They are in the target, and of no other producer."""
    source = event_type(10)
    target = f"{name}-narrow"
    schema = {"properties": {"number": {"enum": [n for n in range(10) if n != refused]}}}
    client.event_types.create(EventType(name=target, owning_application="shop", schema=Schema.json(schema)))
    lines = rioni("tail", source, "--no-follow", "--json")[1].splitlines()
    places = {entry["event"]["number"]: entry["cursor"]["partition"] for entry in map(json.loads, lines)}
    before = [n for n, partition in places.items() if partition == places[refused] and n < refused]
    code, out, _ = rioni("copy", source, target, "--partition", places[refused], "--json")
    told = json.loads(out)
    assert code == 1
    assert (told["read"], told["copied"], told["refused"]) == (len(before) + 1, len(before), 1)
    assert (told["filtered"], told["target_growth"]) == (0, len(before))


def test_a_state_that_can_not_be_used_is_an_error(rioni, event_type):
    source, target = event_type(), event_type(suffix="-copy")
    Path("state").write_text("x")
    code, _, err = rioni("copy", source, target, "--state", "state")
    assert code == 2
    assert "state is not the state of a copy" in err


@pytest.mark.nightly
def test_a_copy_that_is_killed_at_random_moments_copies_everything_once(
    broker, rioni, client, event_type, read, tmp_path
):
    random = Random(length(7, time.time_ns()))
    source, target = event_type(), event_type(suffix="-copy")
    state = tmp_path / "state"
    command = [sys.executable, "-m", "rioni", "copy", source, target, "--url", broker.url]
    command += ["--batch", "10", "--state", str(state)]
    count = 0
    for _ in range(KILLS):
        client.publish(source, [{"number": count + n, "key": f"key-{n % 7}"} for n in range(EVENTS)])
        count += EVENTS
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as copying:
            # This number of changes of the state, whatever the speed, and then a part of a batch.
            for _ in range(random.randrange(1, 40)):
                before = _changed_ns(state)
                wait_until(lambda before=before: copying.poll() is not None or _changed_ns(state) != before)
            time.sleep(random.random() / 100)
            copying.kill()
    code, out, err = rioni("copy", source, target, "--batch", "10", "--state", str(state), "--json")
    assert code == 0, err
    assert read(target) == read(source)
    told = json.loads(out)
    assert (told["copied"], told["target_growth"]) == (count, count)


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
