"""The event types of KPIs over HTTP.

Source: reference system-event-types#kpi-event-types, system-event-types#kpi-definition.
"""

import json
import re
import uuid

import pytest

from rioni.domain.event_types.event_type import IDEMPOTENT_PUBLISHING
from rioni.domain.system.system_events import pseudonymize
from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.server import open_stream, running_server
from tests.support.waiting import wait_until


NAME = "order.created"
FIELDS = {
    "nakadi.access.log": {
        "method",
        "path",
        "query",
        "user_agent",
        "app",
        "app_hashed",
        "status_code",
        "response_time_ms",
        "accept_encoding",
        "content_encoding",
        "request_length",
        "response_length",
    },
    "nakadi.event.type.log": {"event_type", "status", "category", "authz", "compatibility_mode"},
    "nakadi.subscription.log": {"subscription_id", "status"},
    "nakadi.batch.published": {
        "event_type",
        "app",
        "app_hashed",
        "token_realm",
        "number_of_events",
        "ms_spent",
        "batch_size",
    },
    "nakadi.data.streamed": {
        "api",
        "subscription",
        "event_type",
        "app",
        "app_hashed",
        "token_realm",
        "number_of_events",
        "bytes_streamed",
        "batches_streamed",
    },
}
PARTITIONS = {
    "nakadi.access.log": 8,
    "nakadi.event.type.log": 1,
    "nakadi.subscription.log": 1,
    "nakadi.batch.published": 8,
    "nakadi.data.streamed": 8,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A separate server, with the features on and one event type."""
    options, environment = ("--workers", "2"), {"RIONI_KPI_STREAMS_INTERVAL_S": "600"}
    with (
        running_server(tmp_path_factory.mktemp("data") / "rioni", *options, environment=environment) as running,
        running.client() as client,
    ):
        for feature in ("kpi_collection", "access_log_enabled"):
            assert client.post("/settings/features", json={"feature": feature, "enabled": True}).is_success
        assert client.post("/event-types", json=event_type_body(name=NAME)).is_success
        wait_until_all_workers_know(running)
        yield running


def wait_until_all_workers_know(running):
    """Wait until every worker logs its requests: a worker without requests learns of changed features a bit later."""
    agents = []

    def logged_in_a_row():
        agents.append(f"agent-{uuid.uuid4()}")
        with running.client() as client:
            client.get("/version", headers={"User-Agent": agents[-1]})
        # The log of the last ones may still be on its way.
        log = "".join(running.lines)
        return all(agent in log for agent in agents[-10:-5]) and len(agents) >= 10

    wait_until(logged_in_a_row, lambda: "".join(running.lines))


def from_the_beginning(client, name, options=""):
    """A stream of all partitions of an event type."""
    number = len(client.get(f"/event-types/{name}/partitions").json())
    cursors = json.dumps([{"partition": str(partition), "offset": "BEGIN"} for partition in range(number)])
    path = f"/event-types/{name}/events?batch_flush_timeout=1&batch_limit=100{options}"
    return open_stream(client, path, headers={"X-Nakadi-Cursors": cursors})


def everything(client, name, enough):
    """The events of an event type from its beginning, as soon as there are enough."""
    with from_the_beginning(client, name) as stream:
        return stream.events_until(enough, f"enough events of {name}")


def present(client, name):
    """The events of an event type that are there now."""
    with from_the_beginning(client, name, "&stream_timeout=1") as stream:
        return [each for batch in stream.batches() for each in batch.get("events", ())]


def reports(client, name, wanted, enough=bool):
    """The wanted events of an event type, as soon as there are enough."""

    def chosen(events):
        return [each for each in events if wanted(each)]

    return chosen(everything(client, name, lambda seen: enough(chosen(seen))))


@pytest.mark.parametrize("name", FIELDS)
def test_the_event_types_are_as_in_the_contract(client, name):
    event_type = client.get(f"/event-types/{name}").json()
    expected = {
        "category": "business",
        "enrichment_strategies": ["metadata_enrichment"],
        "partition_strategy": "random",
        "cleanup_policy": "delete",
        "owning_application": "stups_nakadi",
        "options": {"retention_time": 345_600_000},
        "compatibility_mode": "forward" if name in ("nakadi.access.log", "nakadi.event.type.log") else "compatible",
    }
    assert {member: event_type[member] for member in expected} == expected
    assert event_type["schema"]["type"] == "avro_schema"
    assert {field["name"] for field in json.loads(event_type["schema"]["schema"])["fields"]} == FIELDS[name]
    assert len(client.get(f"/event-types/{name}/partitions").json()) == PARTITIONS[name]


def test_a_stored_batch_is_reported(client):
    """Reference system-event-types#batch-published, system-event-types#client-fields."""
    events = [event(), event(), event()]
    body = json.dumps(events).encode()
    assert client.post(f"/event-types/{NAME}/events", content=body).status_code == 200
    (report,) = reports(client, "nakadi.batch.published", lambda each: each["batch_size"] == len(body))
    assert report.keys() == FIELDS["nakadi.batch.published"] | {"metadata"}
    assert (report["event_type"], report["number_of_events"]) == (NAME, 3)
    assert (report["app"], report["app_hashed"]) == ("unauthenticated", pseudonymize("salt", "unauthenticated"))
    assert report["metadata"]["event_type"] == "nakadi.batch.published"
    assert report["metadata"]["version"] == "1.0.0"


def test_a_rejected_batch_is_not_reported(client):
    name = f"test.{uuid.uuid4().hex[:8]}"
    assert client.post("/event-types", json=event_type_body(name=name)).is_success
    assert client.post(f"/event-types/{name}/events", json=[{}]).status_code == 422
    assert client.post(f"/event-types/{name}/events", json=[event()]).status_code == 200
    (report,) = reports(client, "nakadi.batch.published", lambda each: each["event_type"] == name)
    assert report["number_of_events"] == 1


@pytest.mark.parametrize("once", ["by its key", "by the ids of its events"])
def test_a_batch_that_is_repeated_is_reported_once(client, once):
    name = f"test.{uuid.uuid4().hex[:8]}"
    body = event_type_body(name=name)
    headers = {"Idempotency-Key": "key"}
    if once == "by the ids of its events":
        body["annotations"], headers = {IDEMPOTENT_PUBLISHING: "on"}, {}
    assert client.post("/event-types", json=body).is_success
    batch = [event(), event()]
    for _ in range(3):
        assert client.post(f"/event-types/{name}/events", json=batch, headers=headers).status_code == 200
    assert client.post(f"/event-types/{name}/events", json=[event()]).status_code == 200
    reports(
        client,
        "nakadi.batch.published",
        lambda each: each["event_type"] == name,
        lambda found: sum(each["number_of_events"] for each in found) == 3,
    )
    # KPIs of repetitions would precede the last one, perhaps in other partitions.
    found = [each for each in present(client, "nakadi.batch.published") if each["event_type"] == name]
    assert sorted(each["number_of_events"] for each in found) == [1, 2]


@pytest.mark.parametrize("api", ["lola", "hila"])
def test_streamed_events_are_reported(client, subscribe, api):
    """Reference system-event-types#data-streamed."""
    name = f"test.{uuid.uuid4().hex[:8]}"
    assert client.post("/event-types", json=event_type_body(name=name)).is_success
    subscription = subscribe(name, read_from="begin") if api == "hila" else None
    assert client.post(f"/event-types/{name}/events", json=[event() for _ in range(10)]).is_success
    begin = {"X-Nakadi-Cursors": json.dumps([{"partition": "0", "offset": "BEGIN"}])}
    path, headers = (f"/subscriptions/{subscription}", {}) if subscription else (f"/event-types/{name}", begin)
    with open_stream(client, f"{path}/events?batch_limit=5&batch_flush_timeout=1", headers=headers) as stream:
        lines = [stream.filled_batch(), stream.filled_batch()]
    found = reports(
        client,
        "nakadi.data.streamed",
        lambda each: each["event_type"] == name,
        lambda found: sum(each["batches_streamed"] for each in found) == 2,
    )
    assert found[0].keys() == FIELDS["nakadi.data.streamed"] | {"metadata"}
    assert {(each["api"], each["subscription"]) for each in found} == {(api, subscription)}
    assert sum(each["number_of_events"] for each in found) == 10
    assert sum(each["bytes_streamed"] for each in found) == sum(
        len(json.dumps(line, separators=(",", ":"))) + 1 for line in lines
    )


def test_every_request_is_reported_and_logged_and_streams_when_they_end(client, server):
    """Reference system-event-types#access-log."""
    agent = f"agent-{uuid.uuid4()}"
    headers = {"User-Agent": agent, "X-Flow-Id": agent, "Accept-Encoding": "identity"}
    missing = client.get("/event-types/nobody.knows?a=b", headers=headers)
    path = f"/event-types/{NAME}/events?stream_timeout=1&batch_flush_timeout=1"
    streamed = client.get(path, headers=headers)

    def of(method_path):
        return reports(
            client,
            "nakadi.access.log",
            lambda each: each["user_agent"] == agent and each["path"] == method_path,
        )

    (report,) = of("/event-types/nobody.knows")
    assert report.keys() == FIELDS["nakadi.access.log"] | {"metadata"}
    assert (report["method"], report["query"], report["status_code"]) == ("GET", "?a=b", 404)
    assert report["response_length"] == len(missing.content)
    assert (report["accept_encoding"], report["content_encoding"]) == ("identity", "-")
    assert report["metadata"]["flow_id"] == agent
    (report,) = of(f"/event-types/{NAME}/events")
    assert report["response_length"] == len(streamed.content)
    assert report["response_time_ms"] >= 1_000
    # They were logged before they were published.
    logged = [line for line in server.lines if agent in line and "status_code=" in line]
    assert [re.search(r"status_code=(\d+)", line)[1] for line in logged] == ["404", "102", "200"]
    assert all(f"{name}=" in line for line in logged for name in FIELDS["nakadi.access.log"] - {"app_hashed"})


def test_changes_of_event_types_and_subscriptions_are_reported(client, subscribe):
    """Reference system-event-types#event-type-log, system-event-types#subscription-log."""
    name = f"test.{uuid.uuid4().hex[:8]}"
    body = event_type_body(name=name, compatibility_mode="none")
    assert client.post("/event-types", json=body).is_success
    subscription = subscribe(name)
    assert client.delete(f"/subscriptions/{subscription}").is_success
    assert client.put(f"/event-types/{name}", json=body | {"owning_application": "other"}).is_success
    assert client.delete(f"/event-types/{name}").is_success

    def ended(found):
        return any(each["status"] == "deleted" for each in found)

    found = reports(client, "nakadi.event.type.log", lambda each: each["event_type"] == name, ended)
    assert [each["status"] for each in found] == ["created", "updated", "deleted"]
    assert {(each["category"], each["authz"], each["compatibility_mode"]) for each in found} == {
        ("business", "disabled", "NONE")
    }
    found = reports(client, "nakadi.subscription.log", lambda each: each["subscription_id"] == subscription, ended)
    assert [each["status"] for each in found] == ["created", "deleted"]


def test_the_brokers_own_publishing_is_not_reported_but_its_consumers_are(client):
    """Reference system-event-types#publisher."""
    assert client.post(f"/event-types/{NAME}/events", json=[event()]).is_success
    reports(client, "nakadi.batch.published", lambda each: each["event_type"] == NAME)
    reports(client, "nakadi.data.streamed", lambda each: each["event_type"] == "nakadi.batch.published")
    last = json.dumps([event(note="x" * 100)]).encode()
    assert client.post(f"/event-types/{NAME}/events", content=last).is_success
    seen = everything(
        client, "nakadi.batch.published", lambda seen: any(each["batch_size"] == len(last) for each in seen)
    )
    assert not [each for each in seen if each["event_type"].startswith("nakadi.")]
