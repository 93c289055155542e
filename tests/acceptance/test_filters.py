"""Subscriptions with filters of events.

Source: reference subscriptions#filters.
"""

import json

import pytest

from tests.acceptance.conftest import partitions, problem, publish_orders
from tests.support.server import open_stream
from tests.support.waiting import wait_until


QUICK = "batch_flush_timeout=1&commit_timeout=2"
ONE = "event.order_id == '1'"
FAILURES = 'rioni_filter_failures_total{api="subscription"}'


def unconsumed(client, subscription):
    (item,) = client.get(f"/subscriptions/{subscription}/stats").json()["items"]
    return sum(partition["unconsumed_events"] for partition in item["partitions"])


def commit(client, subscription, stream, batch):
    headers = {"X-Nakadi-StreamId": stream.stream_id}
    body = {"items": [batch["cursor"]]}
    assert client.post(f"/subscriptions/{subscription}/cursors", json=body, headers=headers).status_code == 204


def test_only_matching_events_are_sent_and_others_count_as_consumed(client, server, create, subscribe, name):
    """Reference streams#hidden-events."""
    create(name)
    publish_orders(client, name, "1", "22", "3", "44", "5")
    subscription = subscribe(name, read_from="begin", filter="size(event.order_id) == 2")
    path = f"/subscriptions/{subscription}/events?{QUICK}&batch_limit=2&max_uncommitted_events=2&stream_limit=2"
    with server.client() as other, open_stream(client, path) as stream:
        batch = stream.filled_batch()
        assert [each["order_id"] for each in batch["events"]] == ["22", "44"]
        commit(other, subscription, stream, batch)
        assert "Stream limit in events reached: 2" in stream.batches()[-1]["info"]["debug"]
    assert unconsumed(client, subscription) == 0


def test_events_whose_evaluation_fails_do_not_match_and_are_counted(client, server, create, subscribe, name):
    """Reference subscriptions#filter-failures."""
    create(name)
    publish_orders(client, name, "1", "a", "2", "b")
    subscription = subscribe(name, read_from="begin", filter="int(event.order_id) > 1")
    before = server.metric(FAILURES)
    path = f"/subscriptions/{subscription}/events?{QUICK}&batch_limit=1"
    with open_stream(client, path) as stream:
        assert [each["order_id"] for each in stream.events(1)] == ["2"]
        wait_until(lambda: server.metric(FAILURES) == before + 2)


def test_all_partitions_are_filtered(client, create, subscribe, name):
    create(name, partition_strategy="user_defined", **partitions(3))
    for partition in "012":
        publish_orders(client, name, *map(str, range(20)), metadata={"partition": partition})
    subscription = subscribe(name, read_from="begin", filter="metadata.partition == '1' && event.order_id == '7'")
    events = []

    def read_all_but_what_follows():
        events.extend(stream.batch().get("events", []))
        # Events behind an uncommitted event are not committed automatically.
        return events and unconsumed(client, subscription) == 13

    with open_stream(client, f"/subscriptions/{subscription}/events?batch_flush_timeout=1") as stream:
        wait_until(read_all_but_what_follows)
        assert "events" not in stream.batch()
        assert unconsumed(client, subscription) == 13
    assert [(each["metadata"]["partition"], each["order_id"]) for each in events] == [("1", "7")]


def test_a_filter_can_be_changed_and_removed_while_a_stream_is_open(client, server, create, subscribe, name):
    create(name)
    subscription = subscribe(name, read_from="begin", filter="event.order_id == '1'")
    path = f"/subscriptions/{subscription}"
    before = client.get(path).json()
    assert before["filter"] == "event.order_id == '1'"
    with server.client() as other, open_stream(client, f"{path}/events?{QUICK}&max_uncommitted_events=9") as stream:
        publish_orders(other, name, "1", "2")
        assert [each["order_id"] for each in stream.events(1)] == ["1"]
        assert other.put(path, json=before | {"filter": "event.order_id == '2'"}).status_code == 204
        publish_orders(other, name, "1", "2")
        assert [each["order_id"] for each in stream.events(1)] == ["2"]
        assert other.put(path, json=before | {"filter": ""}).status_code == 204
        publish_orders(other, name, "1")
        assert [each["order_id"] for each in stream.events(1)] == ["1"]
    assert "filter" not in client.get(path).json()


def test_clients_without_support_for_filters_do_not_remove_them(client, create, subscribe, name):
    create(name)
    path = f"/subscriptions/{subscribe(name, filter=ONE)}"
    before = client.get(path).json()
    unaware = {name: value for name, value in before.items() if name != "filter"} | {"annotations": {"a": "b"}}
    assert client.put(path, json=unaware).status_code == 204
    assert client.get(path).json()["filter"] == before["filter"]


def test_subscriptions_without_a_filter_have_no_additional_fields(client, create, subscribe, name):
    create(name)
    assert "filter" not in client.get(f"/subscriptions/{subscribe(name)}").json()


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("event.order_id ==", "Syntax error"),
        ("order_id == '1'", "order_id is unknown"),
        ("1", "has to be true or false"),
    ],
)
def test_an_invalid_filter_is_rejected(client, create, subscribe, name, expression, why):
    create(name)
    body = {"owning_application": "app", "event_types": [name], "filter": expression}
    problem(client.post("/subscriptions", json=body), 422, why)
    path = f"/subscriptions/{subscribe(name)}"
    problem(client.put(path, json=client.get(path).json() | {"filter": expression}), 422, why)


OPEN = {
    "type": "json_schema",
    "schema": '{"properties": {"order_id": {"type": "string"}, "total": {"type": "number"}}, "required": ["order_id"]}',
}


def test_a_filter_that_the_schema_excludes_is_refused_in_every_way_to_submit_one(client, create, subscribe, name):
    """Reference subscriptions#filter-check."""
    create(name, compatibility_mode="compatible", schema=OPEN)
    why = f"event.totl: the schema of {name} excludes it; did you mean total?"
    body = {"owning_application": "app", "event_types": [name], "filter": "event.totl > 1"}
    problem(client.post("/subscriptions", json=body), 422, why)
    path = f"/subscriptions/{subscribe(name, filter='event.total > 1')}"
    problem(client.put(path, json=client.get(path).json() | {"filter": "event.totl > 1"}), 422, why)
    problem(client.get(f"/event-types/{name}/events", params={"filter": "event.totl > 1"}), 422, why)
    tried = {"filter": "event.totl > 1", "events": [], "event_types": [name]}
    problem(client.post("/filter-evaluations", json=tried), 422, why)
    problem(client.post("/filter-evaluations", json=tried | {"event_types": ["unknown"]}), 404, "unknown")


def test_what_nothing_declares_is_a_warning_in_every_way_to_submit_a_filter(client, create, subscribe, name):
    """Reference subscriptions#filter-check."""
    create(name, compatibility_mode="forward", schema=OPEN)
    why = f"event.totl: the schema of {name} does not declare it; did you mean total?"
    body = {"owning_application": "app-w", "event_types": [name], "filter": "event.totl > 1"}
    created = client.post("/subscriptions", json=body)
    assert created.status_code == 201
    assert created.headers["Warning"] == f'299 rioni "{why}"'
    path = f"/subscriptions/{subscribe(name, filter='event.total > 1.0')}"
    changed = client.put(path, json=client.get(path).json() | {"filter": "event.totl > 1"})
    assert changed.status_code == 204
    assert changed.headers["Warning"] == f'299 rioni "{why}"'
    assert "Warning" not in client.put(path, json=client.get(path).json() | {"filter": "event.total > 1"}).headers
    stream = client.get(
        f"/event-types/{name}/events",
        params={"filter": "event.totl > 1", "stream_timeout": 1, "batch_flush_timeout": 1},
    )
    assert f'299 rioni "{why}"' in stream.headers["Warning"]
    tried = client.post(
        "/filter-evaluations", json={"filter": "event.totl > 1", "events": [{"totl": "x"}], "event_types": [name]}
    ).json()
    assert tried["warnings"] == [why]
    assert tried["items"][0]["matches"] is False
    assert "No matching overloads" in tried["items"][0]["failure"]


def test_a_filter_stays_when_the_schema_changes_and_other_members_can_be_changed(client, create, subscribe, name):
    """Reference subscriptions#filter-check."""
    create(name, compatibility_mode="none", schema=OPEN)
    path = f"/subscriptions/{subscribe(name, filter='event.total > 1.0', read_from='begin')}"
    narrower = {"type": "json_schema", "schema": '{"properties": {"order_id": {"type": "string"}}}'}
    assert client.post(f"/event-types/{name}/schemas", json=narrower).status_code == 201
    changed = client.put(path, json=client.get(path).json() | {"labels": {"a": "b"}})
    assert changed.status_code == 204
    assert f"event.total: the schema of {name} excludes it" in changed.headers["Warning"]


@pytest.mark.parametrize("way", ["PUT of the event type", "POST of a schema"])
def test_a_schema_that_excludes_what_a_filter_reads_is_accepted_with_a_warning(client, create, subscribe, name, way):
    """Reference subscriptions#filter-check."""
    create(name, compatibility_mode="none", schema=OPEN)
    owner = client.get(f"/subscriptions/{subscribe(name, filter='event.total > 1')}").json()["owning_application"]
    subscribe(name, filter="event.order_id == 'a'")

    def change(**members):
        schema = {"type": "json_schema", "schema": json.dumps(members)}
        if way == "POST of a schema":
            answer = client.post(f"/event-types/{name}/schemas", json=schema)
            assert answer.status_code in (200, 201), answer.text
        else:
            answer = client.put(
                f"/event-types/{name}", json=client.get(f"/event-types/{name}").json() | {"schema": schema}
            )
            assert answer.status_code == 200, answer.text
        return answer.headers.get("Warning", "")

    order = {"order_id": {"type": "string"}}
    of_filter = f'299 rioni "the filter of {owner}/default matches nothing: event.total: '
    assert "299 rioni" not in change(properties=order | {"total": {"type": "number"}, "more": {}})
    closed = change(properties=order, additionalProperties=False)
    assert f"{of_filter}the schema of {name} excludes it" in closed
    assert closed.count("299 rioni") == 1
    # It has been said; what the change does not exclude anew is not said again.
    assert "299 rioni" not in change(properties=order, additionalProperties=False, title="again")
    assert "299 rioni" not in change(properties=order | {"total": {"type": "number"}})
    assert f"{of_filter}it is string by the schema of {name}" in change(
        properties=order | {"total": {"type": "string"}}
    )
