"""The audit log as an event type, over HTTP (reference system-event-types#audit-log)."""

import uuid

import pytest

from tests.support.server import open_stream, running_server
from tests.support.tokens import bearer, write_tokens


LOG = "nakadi.audit.log"


@pytest.fixture
def server(tmp_path):
    """A server for each test: a feature is switched."""
    options = ("--workers", "2")
    environment = {"RIONI_AUDIT_OWNING_APPLICATION": "auditors", "RIONI_PSEUDONYM_SALT": "pepper"}
    with running_server(tmp_path / "data", *options, environment=environment) as running:
        yield running


def test_the_event_type_exists_with_the_feature_and_a_subscription_gets_every_change(client, create, subscribe):
    """The definition of the audit log, and one event of most kinds.

    Source: reference system-event-types#audit-definition, system-event-types#creation,
    system-event-types#common-definition.
    """
    assert client.get(f"/event-types/{LOG}").status_code == 404
    assert client.post("/settings/features", json={"feature": "audit_log_collection", "enabled": True}).is_success

    event_type = client.get(f"/event-types/{LOG}").json()
    expected = {
        "category": "data",
        "enrichment_strategies": ["metadata_enrichment"],
        "partition_strategy": "hash",
        "partition_key_fields": ["resource_id"],
        "cleanup_policy": "delete",
        "compatibility_mode": "forward",
        "audience": "company-internal",
        "owning_application": "auditors",
        "options": {"retention_time": 345_600_000},
    }
    assert {name: event_type[name] for name in expected} == expected
    admin = [{"data_type": "service", "value": "stups_nakadi"}]
    assert event_type["authorization"] == {"admins": admin, "readers": admin, "writers": admin}

    subscription = subscribe(LOG, read_from="begin")
    name = create(f"test.{uuid.uuid4().hex[:8]}")
    entry = f"/settings/blacklist/PRODUCER_APP/{uuid.uuid4().hex[:8]}"
    assert client.put(entry).is_success
    assert client.delete(entry).is_success
    # The feature, the audit log itself with its timeline, the subscription, an event type with its timeline, two more.
    with open_stream(client, f"/subscriptions/{subscription}/events?batch_flush_timeout=1") as stream:
        events = stream.events(8)
    said = {(event["data_op"], event["data"]["resource_type"], event["data"]["resource_id"]) for event in events}
    assert {
        ("U", "feature", "audit_log_collection"),
        ("C", "event_type", LOG),
        ("C", "event_type", name),
        ("C", "subscription", subscription),
        ("C", "blacklist_entry", entry.removeprefix("/settings/blacklist/").replace("/", ":")),
        ("D", "blacklist_entry", entry.removeprefix("/settings/blacklist/").replace("/", ":")),
    } <= said
    (created,) = [event for event in events if event["data"]["resource_id"] == name]
    assert created["data"]["new_object"] == client.get(f"/event-types/{name}").json()
    assert created["data"]["user"] == "unauthenticated"
    assert created["metadata"]["event_type"] == LOG


def test_authorized_clients_may_publish_valid_events_to_the_audit_log(client):
    client.post("/settings/features", json={"feature": "audit_log_collection", "enabled": True})
    response = client.post(f"/event-types/{LOG}/events", json=[{"data_op": "C", "data_type": "x", "data": {}}])
    assert response.status_code == 422


def test_events_continue_when_their_event_type_gets_another_timeline(client, subscribe):
    client.post("/settings/features", json={"feature": "audit_log_collection", "enabled": True})
    subscription = subscribe(LOG, read_from="end")
    names = [f"CONSUMER_APP/{uuid.uuid4().hex[:8]}" for _ in range(3)]
    with open_stream(client, f"/subscriptions/{subscription}/events?batch_flush_timeout=1") as stream:
        assert client.put(f"/settings/blacklist/{names[0]}").is_success
        response = client.post(f"/event-types/{LOG}/timelines", json={"storage_id": "default"})
        assert response.is_success, response.text
        for name in names[1:]:
            assert client.put(f"/settings/blacklist/{name}").is_success
        changes: list = []

        def seen():
            return [each["resource_id"] for each in changes if each["resource_type"] == "blacklist_entry"]

        def switched():
            timelines = [each["new_object"] for each in changes if each["resource_type"] == "timeline"]
            return [each for each in timelines if each["event_type"] == LOG and each["order"] == 2]

        def enough(events):
            changes[:] = [event["data"] for event in events]
            return len(seen()) >= 3 and switched()

        stream.events_until(enough, "three entries of the blacklist and a timeline")
    assert sorted(seen()) == sorted(name.replace("/", ":") for name in names)
    assert len(switched()) == 1


def test_unauthorized_clients_read_neither_events_nor_offsets_of_the_audit_log(tmp_path):
    write_tokens(tmp_path / "tokens.toml", {"admin": {"uid": "operations"}, "stranger": {"uid": "shop"}})
    environment = {
        "RIONI_AUTH_MODE": "basic",
        "RIONI_AUTH_TOKENS": str(tmp_path / "tokens.toml"),
        "RIONI_DEFAULT_ADMIN": "service:operations",
    }
    path = f"/event-types/{LOG}"
    begin = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
    with (
        running_server(tmp_path / "data", "--workers", "1", environment=environment) as server,
        server.client(headers=bearer("admin")) as admin,
        server.client(headers=bearer("stranger")) as stranger,
    ):
        assert admin.post("/settings/features", json={"feature": "audit_log_collection", "enabled": True}).is_success
        storage = {"id": "k", "storage_type": "kafka", "kafka_configuration": {"pw": "s3cret", "zk_path": "/p"}}
        assert admin.post("/storages", json=storage).status_code == 201
        body = {"owning_application": "shop", "event_types": [LOG], "read_from": "begin"}
        subscription = stranger.post("/subscriptions", json=body).json().get("id", uuid.uuid4())
        for refused in (
            stranger.get("/storages"),
            stranger.get(f"{path}/partitions"),
            stranger.get(f"{path}/events", headers=begin),
            stranger.get(f"/subscriptions/{subscription}/events"),
            stranger.post(f"{path}/events", json=[]),
        ):
            assert refused.status_code in (403, 404), refused.text
        read = admin.post("/subscriptions", json=body | {"consumer_group": "admin"}).json()["id"]
        batches = f"/subscriptions/{read}/events?batch_flush_timeout=1"
        with open_stream(admin, batches) as stream:
            events = stream.events_until(
                lambda events: "storage" in {event["data"]["resource_type"] for event in events}, "a storage"
            )
    assert "s3cret" not in str(events)
