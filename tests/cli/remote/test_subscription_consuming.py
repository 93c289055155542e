"""`rioni subscriptions consume`: what is written is committed, and nothing else."""

import json
import os
import signal
import subprocess
import sys

import pytest

from rioni.client import EventType, Schema, Subscription, metadata


@pytest.fixture
def subscription(client, name):
    """A subscription to three events."""
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({"type": "object"})))
    client.publish(name, [{"order": str(number), "metadata": metadata()} for number in range(3)])
    wanted = Subscription(owning_application=name, event_types=[name], read_from="begin")
    return client.subscriptions.create(wanted).id


def test_what_is_written_is_committed_and_comes_once(rioni, subscription):
    lines = [rioni("subscriptions", "consume", subscription, "--limit", "1", "--template", "{order}") for _ in range(3)]
    assert lines == [(0, f"{number}\n", "") for number in range(3)]


def test_without_a_commit_events_come_again(rioni, subscription):
    for _ in range(2):
        code, out, _ = rioni("subscriptions", "consume", subscription, "--limit", "2", "--no-commit", "--json")
        found = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        assert [each["event"]["order"] for each in found] == ["0", "1"]
        assert set(found[0]["cursor"]) == {"event_type", "partition", "offset"}


def test_the_time_ends_it(rioni, subscription):
    code, out, _ = rioni("subscriptions", "consume", subscription, "--for", "5", "--partition", "0")
    assert code == 0
    assert [json.loads(line)["order"] for line in out.splitlines()] == ["0", "1", "2"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_after_the_commit(broker, client, subscription, number, code):
    command = [sys.executable, "-m", "rioni", "subscriptions", "consume", subscription, "--url", broker.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert [json.loads(process.stdout.readline())["order"] for _ in range(3)] == ["0", "1", "2"]
        process.send_signal(number)
        assert process.wait(60) == code
    (cursor,) = client.subscriptions.cursors(subscription)
    assert cursor.offset == "001-0001-000000000000000002"


def test_a_partition_of_something_else_is_an_error(rioni, subscription):
    code, _, err = rioni("subscriptions", "consume", subscription, "--partition", "other:0")
    assert code == 2
    assert "other:0 is no partition of" in err
