"""`rioni subscriptions lag` and `watch`."""

import json

import pytest

from rioni.cli.registry import subscription_lag
from rioni.cli.registry.subscription_lag import lags_of
from rioni.client import CursorSpecification, EventType, Schema, Statistic, Subscription, metadata
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def subscription(client, name):
    """A subscription that has three uncommitted events in partition 0, and one in partition 1."""
    statistic = Statistic(messages_per_minute=1, message_size=1, read_parallelism=2, write_parallelism=2)
    event_type = EventType(
        name=name,
        owning_application="shop",
        schema=Schema.json({}),
        partition_strategy="user_defined",
        default_statistic=statistic,
    )
    client.event_types.create(event_type)
    client.publish(name, [{"metadata": metadata() | {"partition": partition}} for partition in "0001"])
    made = client.subscriptions.create(Subscription(owning_application=name, event_types=[name]))
    client.subscriptions.reset(made.id, [CursorSpecification(offset="BEGIN")])
    return made.id


def test_the_lag_is_shown_by_partition_event_type_or_subscription(rioni, name, subscription):
    code, out, _ = rioni("subscriptions", "lag", subscription)
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["subscription", "application", "event", "type", "partition", "events", "seconds", "stream"]
    assert [row[:5] for row in rows[1:3]] == [
        [subscription, f"{name}/default", name, "0", "3"],
        [subscription, f"{name}/default", name, "1", "1"],
    ]
    assert rows[3] == ["total", "4"]
    for options in (["--by", "event-type"], ["--by", "subscription"]):
        code, out, _ = rioni("subscriptions", "lag", "--owning-application", name, *options, "--json")
        (row,) = map(json.loads, out.splitlines())
        assert (row["unconsumed_events"], row["streams"]) == (4, [])
        assert row["event_type"] == (name if "event-type" in options else None)
    code, out, _ = rioni("subscriptions", "lag", "--event-type", name)
    assert [line.split()[2] for line in out.splitlines()] == ["events", "4"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fail-above", "2"], 1),
        (["--fail-above", "3"], 0),
        (["--fail-above", "3", "--by", "subscription"], 1),
        (["--fail-above", "9", "--fail-above-seconds", "100000"], 0),
    ],
)
def test_too_much_lag_is_a_finding(rioni, subscription, options, code):
    assert rioni("subscriptions", "lag", subscription, *options)[0] == code


@pytest.mark.parametrize("option", ["--owning-application", "--event-type"])
@pytest.mark.parametrize("limit", ["--fail-above", "--fail-above-seconds"])
def test_a_check_that_finds_no_subscription_is_an_error(rioni, name, subscription, option, limit):
    code, _, err = rioni("subscriptions", "lag", option, f"{name}x", limit, "9")
    assert code == 2
    assert f"{name}x: nothing was checked." in err
    assert rioni("subscriptions", "lag", option, f"{name}x")[0] == 0


def test_a_cursor_beyond_the_end_is_a_finding_and_is_shown(rioni, client, name, subscription):
    statistics = client.subscriptions.stats(subscription)
    statistics[0].partitions[0].cursor_error = "beyond the end"
    found = lags_of(client.subscriptions.get(subscription), statistics)
    assert subscription_lag._is_too_much(found[0], 100, None)
    assert not subscription_lag._is_too_much(found[1], 100, None)


def test_what_cannot_be_asked_for_is_an_error(rioni):
    code, _, err = rioni("subscriptions", "lag", "--by", "application")
    assert code == 2
    assert "'application' is not one of 'partition', 'event-type', 'subscription'." in " ".join(err.split())
    assert rioni("subscriptions", "lag", "00000000-0000-0000-0000-000000000000")[0] == 2


def test_watching_writes_a_line_for_each_row_and_refresh(rioni, name, subscription):
    code, out, _ = rioni("subscriptions", "watch", subscription, "--every", "0.1", "--count", "2", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [each["partition"] for each in rows] == ["0", "1", "0", "1"]
    assert [each["change_per_s"] for each in rows] == [None, None, 0.0, 0.0]
    code, out, _ = rioni("subscriptions", "watch", "--owning-application", name, "--count", "1")
    assert f" {subscription} {name}/default: 4 events, 0 streams\n" in out


def test_watching_goes_on_when_the_broker_can_be_reached_again(rioni, broker, client, name, subscription, monkeypatch):
    there = ("127.0.0.1", int(broker.url.rpartition(":")[2]))
    proxy = TcpProxy(there)
    monkeypatch.setenv("RIONI_URL", f"http://{proxy.address}")
    targets = iter((("127.0.0.1", 1), there))

    def wait(_seconds):
        proxy.target = next(targets)
        proxy.break_off()

    monkeypatch.setattr(subscription_lag, "sleep", wait)
    options = ["--every", "0.1", "--count", "3", "--json"]
    code, out, err = rioni("subscriptions", "watch", subscription, *options)
    proxy.close()
    assert code == 0
    assert len(out.splitlines()) == 4
    assert proxy.address in err


def test_on_a_terminal_a_table_is_refreshed_in_place(rioni, subscription, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, _ = rioni("subscriptions", "watch", subscription, "--every", "0.1", "--count", "2")
    assert code == 0
    assert "empty in" in out
    assert "██" in out
