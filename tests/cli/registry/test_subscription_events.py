"""`rioni subscriptions consume`: events are written, and then committed."""

import json
import subprocess
import sys

import pytest

from rioni.client import EventType, Schema, Subscription
from tests.support.waiting import WAIT_S


@pytest.fixture
def subscription(client, name):
    """A subscription with five events, in one partition."""
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    created = client.subscriptions.create(
        Subscription(owning_application="shop", event_types=[name], read_from="begin")
    )
    client.publish(name, [{"number": number} for number in range(5)])
    return created.id


def _numbers(out):
    return [json.loads(line)["number"] for line in out.splitlines()]


def test_what_is_written_is_committed_and_does_not_come_again(rioni, subscription):
    code, out, err = rioni("subscriptions", "consume", subscription, "--limit", "2")
    assert (code, _numbers(out), err) == (0, [0, 1], "")
    assert _numbers(rioni("subscriptions", "consume", subscription, "--limit", "3", "--partition", "0")[1]) == [2, 3, 4]
    assert rioni("subscriptions", "consume", subscription, "--idle", "2") == (0, "", "")


def test_the_output_has_the_forms_of_tail(rioni, subscription, name, snapshot):
    out = rioni("subscriptions", "consume", subscription, "--limit", "2", "--json")[1]
    snapshot("subscriptions-consume", out, orders=name)
    out = rioni("subscriptions", "consume", subscription, "--limit", "2", "--columns", "number,offset")[1]
    assert [line.split() for line in out.splitlines()] == [
        ["number", "offset"],
        ["2", "001-0001-000000000000000002"],
        ["3", "001-0001-000000000000000003"],
    ]
    out = rioni("subscriptions", "consume", subscription, "--limit", "1", "--template", "{number} {cursor.partition}")[
        1
    ]
    assert out == "4 0\n"


def test_what_could_not_be_written_comes_again(rioni, broker, subscription):
    command = [sys.executable, "-m", "rioni", "subscriptions", "consume", subscription, "--url", broker.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consuming:
        consuming.stdout.close()
        consuming.stdout = None
        assert consuming.communicate(timeout=WAIT_S) == (None, "")
        assert consuming.returncode == 141
    assert _numbers(rioni("subscriptions", "consume", subscription, "--limit", "5")[1]) == list(range(5))


def test_a_partition_of_several_event_types_needs_the_event_type(rioni, client, subscription, name):
    client.event_types.create(EventType(name=f"{name}-2", owning_application="shop", schema=Schema.json({})))
    both = client.subscriptions.create(
        Subscription(owning_application="shop", event_types=[name, f"{name}-2"], read_from="begin")
    ).id
    code, out, err = rioni("subscriptions", "consume", both, "--partition", "0")
    assert (code, out) == (2, "")
    assert f"write {name}:0" in err
    assert _numbers(rioni("subscriptions", "consume", both, "-p", f"{name}:0", "--limit", "5")[1]) == list(range(5))


def test_a_subscription_that_does_not_exist_is_an_error(rioni):
    code, out, err = rioni("subscriptions", "consume", "038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
    assert (code, out) == (2, "")
    assert "038fc871" in err
