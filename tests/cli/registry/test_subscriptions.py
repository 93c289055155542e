"""`rioni subscriptions`: create, show, delete, and the streams of one."""

import json
from pathlib import Path

import httpx
import pytest

from rioni.client import EventType, NotFound, Schema, metadata
from tests.support.server import Stream
from tests.support.waiting import WAIT_S


@pytest.fixture
def orders(client, name):
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    return name


@pytest.fixture
def create(rioni, orders):
    """Creates a subscription with options; returns its id."""

    def create(*options):
        options = ["--owning-application", orders, "--event-type", orders, *options]
        code, out, err = rioni("subscriptions", "create", *options)
        assert code == 0, err
        return out.strip()

    return create


def test_a_subscription_is_created_once(rioni, client, orders, create):
    options = ["--owning-application", orders, "--event-type", orders, "--read-from", "begin", "--label", "a=b"]
    code, out, err = rioni("subscriptions", "create", *options)
    assert (code, err) == (0, "The subscription is created.\n")
    assert client.subscriptions.get(out.strip()).read_from == "begin"
    assert rioni("subscriptions", "create", *options) == (0, out, "The subscription existed.\n")
    code, again, err = rioni("subscriptions", "create", *options[:4], "--label", "a=c", "--filter", "event.x == 1")
    assert (code, again) == (0, out)
    assert err.splitlines() == [
        "The subscription existed.",
        "Nothing is changed: its filter is another one.",
        "Nothing is changed: its labels is another one.",
    ]
    assert client.subscriptions.get(out.strip()).labels == {"a": "b"}


def test_filter_rights_and_dead_letters_are_options(client, create):
    options = ["--filter", "event.total > 3.0", "--send-at-most", "3", "--unprocessable", "keep"]
    found = client.subscriptions.get(create(*options, "--admin", "user:jane", "--reader", "service:shop"))
    assert found.filter == "event.total > 3.0"
    assert str(found.authorization.readers[0]) == "service:shop"
    assert found.annotations == {
        "nakadi.zalando.org/subscription-max-event-send-count": "3",
        "nakadi.zalando.org/subscription-unprocessable-event-policy": "DEAD_LETTER_QUEUE",
    }


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--event-type", "absent"], "there is no event type absent"),
        (["--event-type", "NAME", "--filter", "event.("], "The filter can't be used"),
        (["--event-type", "NAME", "--send-at-most", "3"], "are given together"),
        (["--event-type", "NAME", "--read-from", "middle"], '"middle" is not one of "begin", "end" or "cursors"'),
        ([], "event_types is missing"),
    ],
)
def test_what_is_wrong_with_a_new_subscription_is_said(rioni, orders, options, error):
    options = [option.replace("NAME", orders) for option in options]
    code, out, err = rioni("subscriptions", "create", "--owning-application", "shop", *options)
    assert (code, out) == (2, "")
    assert error in " ".join(err.split())


def test_a_subscription_is_shown_and_found(rioni, orders, create):
    subscription = create("--label", "team=shop", "--reader", "user:jane", "--admin", "user:jane")
    code, out, _ = rioni("subscriptions", "show", subscription)
    assert code == 0
    assert [line.rstrip() for line in out.splitlines()][:4] == [
        f"id                  {subscription}",
        f"owning application  {orders}",
        "consumer group      default",
        f"event types         {orders}",
    ]
    for options in (["--event-type", orders], ["--owning-application", orders, "--reader", "user:jane", "--status"]):
        code, out, _ = rioni("subscriptions", "list", *options)
        assert (code, len(out.splitlines())) == (0, 2)
        assert subscription in out
    assert out.splitlines()[1].endswith("0 of 1                 0")
    code, out, _ = rioni("subscriptions", "list", "--event-type", orders, "--json")
    assert rioni("event-types", "apply", "-", "--dry-run", stdin=out) == (0, "1 unchanged.\n", "")
    code, out, _ = rioni("subscriptions", "show", subscription, "--yaml")
    assert (code, out.splitlines()[0]) == (0, "kind: subscription")
    assert rioni("event-types", "apply", "-", "--dry-run", stdin=out)[0] == 0


def test_deleting_a_subscription_is_asked_for(rioni, client, orders, create):
    subscription = create()
    code, _, err = rioni("subscriptions", "delete", subscription, stdin="")
    assert code == 2
    assert f"Delete the subscription of {orders}/default to {orders}" in err
    assert "It has 0 streams." in err
    assert rioni("subscriptions", "delete", subscription, "--yes")[0] == 0
    with pytest.raises(NotFound):
        client.subscriptions.get(subscription)


def test_cursors_are_committed_for_a_stream_which_is_then_closed(rioni, client, broker, orders, create):
    subscription = create("--read-from", "begin")
    client.publish(orders, [{"metadata": metadata()}, {"metadata": metadata()}])
    url = f"{broker.url}/subscriptions/{subscription}/events?batch_limit=2"
    with httpx.stream("GET", url, timeout=WAIT_S) as stream:
        batches = Stream(stream)
        offset = batches.filled_batch()["cursor"]["offset"]
        stream_id = stream.headers["X-Nakadi-StreamId"]
        commit = ["subscriptions", "commit", subscription, "--stream-id", stream_id]
        code, out, _ = rioni(*commit, f"0:{offset}", "--json")
        assert (code, json.loads(out)["result"]) == (0, "committed")
        code, out, _ = rioni(*commit, f"{orders}:0:{offset}", "--json")
        assert (code, json.loads(out)["result"]) == (0, "outdated")
        assert client.subscriptions.cursors(subscription)[0].offset == offset
        code, out, _ = rioni("subscriptions", "lag", subscription, "--json")
        assert json.loads(out)["streams"] == [stream_id]
        code, out, _ = rioni("subscriptions", "close-stream", subscription)
        assert (code, out) == (0, f"The stream {stream_id} is closed.\n")
        assert all("events" not in batch for batch in batches.batches())
    code, out, _ = rioni("subscriptions", "ended-streams", subscription)
    assert code == 0
    assert out.splitlines()[0].split() == ["client", "reason", "streams", "first", "last"]
    assert out.splitlines()[1].split()[:3] == ["unauthenticated", "session_ended", "1"]


@pytest.mark.parametrize("cursor", ["0", "0:", ":BEGIN", "a:b:c:d"])
def test_what_is_no_cursor_is_an_error_with_an_example(rioni, create, cursor):
    subscription = create()
    for command in (["commit", subscription, "--stream-id", "x", cursor], ["reset", subscription, "--cursor", cursor]):
        code, _, err = rioni("subscriptions", *command)
        assert code == 2
        assert f"{cursor} is not a cursor; write" in err


def test_a_filter_is_compared_with_the_schema_when_it_is_created_and_applied(rioni, client, orders):
    """Reference subscriptions#filter-check."""
    text = '{"properties": {"total": {"type": "number"}}}'
    client.schemas.add(orders, Schema(type="json_schema", schema=text))
    options = ["--owning-application", orders, "--event-type", orders]
    code, _, err = rioni("subscriptions", "create", *options, "--filter", "event.totl > 1")
    assert code == 0
    warning = f"event.totl: the schema of {orders} does not declare it; did you mean total?"
    assert f"Warning: {warning}." in err.splitlines()
    code, out, err = rioni(
        "subscriptions", "create", *options, "--consumer-group", "b", "--filter", "event.total == 'a'"
    )
    assert (code, out) == (2, "")
    assert f"it is number by the schema of {orders}, and is compared with string" in " ".join(err.split())
    text = f"kind: subscription\nowning_application: c\nevent_types: [{orders}]\nfilter: event.totl > 1\n"
    Path("a.yaml").write_text(text)
    code, out, _ = rioni("event-types", "apply", "a.yaml", "--dry-run")
    assert code == 1
    assert f"warning: {warning}" in " ".join(out.split())
