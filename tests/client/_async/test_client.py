"""Every operation of the API by the client, and its answer as a model."""

import msgspec
import pytest

from rioni.client import (
    Attribute,
    Conflict,
    Cursor,
    CursorSpecification,
    EventType,
    NotFound,
    PreconditionFailed,
    Problem,
    PublishingFailed,
    Rights,
    Schema,
    Storage,
    Subscription,
    Unprocessable,
)


BEGIN = "BEGIN"


def test_an_event_type_is_created_changed_and_deleted(client, event_type):
    name = event_type(labels={"team": "orders"})
    found = client.event_types.get(name)
    assert (found.category, found.labels, found.schema.parsed()["properties"]) == (
        "business",
        {"team": "orders"},
        {"number": {"type": "integer"}},
    )
    found.labels = {}
    assert client.event_types.update(found).labels == {}
    assert [each.name for each in client.event_types.list(name=f"{name[:-1]}*")] == [name]
    client.event_types.delete(name)
    with pytest.raises(NotFound, match="does not exist"):
        client.event_types.get(name)


def test_a_change_of_an_event_type_that_was_changed_meanwhile_is_refused(client, event_type):
    first, second = (client.event_types.get(name) for name in [event_type()] * 2)
    first.labels = {"team": "a"}
    client.event_types.update(first)
    second.labels = {"team": "b"}
    with pytest.raises(PreconditionFailed):
        client.event_types.update(second)
    assert client.event_types.update(second, if_match="*").labels == {"team": "b"}


def test_an_event_type_that_exists_is_a_conflict(client, event_type):
    name = event_type()
    with pytest.raises(Conflict):
        client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))


def test_a_problem_names_request_status_and_reason(client):
    with pytest.raises(Unprocessable) as caught:
        client.event_types.create(EventType(name="", owning_application="shop", schema=Schema.json({})))
    assert str(caught.value).startswith("POST /event-types: 422 Unprocessable Entity: ")
    assert 'Field "name"' in caught.value.detail


def test_an_event_type_survives_a_round_trip_through_its_members(client, event_type):
    found = client.event_types.get(event_type())
    assert EventType.of(msgspec.json.decode(msgspec.json.encode(found.members()))).members() == found.members()


def test_schemas_are_added_found_and_checked(client, event_type):
    name = event_type(compatibility_mode="compatible")
    larger = Schema.json({"properties": {"number": {"type": "integer"}, "text": {"type": "string"}}})
    assert client.schemas.check(name, larger).compatible
    assert not client.schemas.check(name, Schema.json({"properties": {"number": {"type": "string"}}})).compatible
    client.schemas.add(name, larger)
    assert [schema.version for schema in client.schemas.list(name)] == ["1.1.0", "1.0.0"]
    assert client.schemas.find(name, larger).version == client.schemas.get(name).version == "1.1.0"
    versions = client.schemas.avro_versions("batch.publishing")
    assert client.schemas.avro("batch.publishing", versions[0].version) == versions[0]


def test_partitions_timelines_and_cursors(client, event_type):
    name = event_type(partitions=2, partition_strategy="user_defined")
    events = [{"number": n, "metadata": {**_metadata(n), "partition": "0"}} for n in range(3)]
    assert client.publish(name, events) == []
    first, _ = client.partitions.list(name)
    assert client.partitions.get(name, "0", consumed_offset=BEGIN).unconsumed_events == 3
    assert client.partitions.list(name, cursors=[Cursor(partition="0", offset=BEGIN)])[-1].unconsumed_events == 3
    begin, last = (
        CursorSpecification(partition="0", offset=offset) for offset in (BEGIN, first.newest_available_offset)
    )
    assert client.partitions.distances(name, [(begin, last)])[0].distance == 3
    assert client.partitions.lag(name, [begin])[0].unconsumed_events == 3
    shifted = CursorSpecification(partition="0", offset=BEGIN, shift=3)
    assert client.partitions.shift(name, [shifted])[0].offset == first.newest_available_offset
    client.timelines.create(name, "default")
    assert [timeline.order for timeline in client.timelines.list(name)] == [1, 2]
    client.settings.switch_feature("repartitioning", enabled=True)
    client.partitions.set_count(name, 3)
    assert len(client.partitions.list(name)) == 3
    batches = [*client.events(name, cursors=[Cursor(partition="0", offset=BEGIN)], stream_limit=3, batch_limit=3)]
    assert sum(len(batch.events) for batch in batches) == 3
    watched = client.events(
        name, cursors=[Cursor(partition="0", offset=BEGIN)], stream_limit=1, events_per_second_limit=1
    )
    assert [batch.info["left_out"] for batch in watched if batch.events] == [2]


def test_a_subscription_is_created_streamed_reset_and_deleted(client, event_type):
    name = event_type()
    wanted = Subscription(owning_application="shop", event_types=[name], read_from="begin")
    subscription = client.subscriptions.create(wanted)
    assert client.subscriptions.create(wanted).id == subscription.id
    assert [each.id for each in client.subscriptions.list(event_types=[name])] == [subscription.id]
    client.subscriptions.reset(subscription.id, [CursorSpecification(event_type=name, partition="0", offset=BEGIN)])
    assert [cursor.partition for cursor in client.subscriptions.cursors(subscription.id)] == ["0"]
    assert client.subscriptions.stats(subscription.id, show_time_lag=True)[0].partitions[0].unconsumed_events == 0
    subscription.labels = {"team": "orders"}
    client.subscriptions.update(subscription)
    assert client.subscriptions.get(subscription.id).labels == {"team": "orders"}
    (consumer,) = client.event_types.consumers(name, show_time_lag=True).subscriptions
    assert (consumer.id, consumer.consumer_lag_seconds) == (subscription.id, 0)
    assert client.event_types.producers(name) == []
    assert client.subscriptions.dead_letters(subscription.id) == []
    assert client.subscriptions.ended_streams(subscription.id) == []
    assert client.subscriptions.redrive(subscription.id, reason="another").redriven == 0
    assert client.subscriptions.preview_redrive(subscription.id, limit=1, force=True).more is False
    begin = Cursor(partition="0", offset="BEGIN")
    assert client.subscriptions.redrive(subscription.id, after=begin).after is None
    stream_id = "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"
    with pytest.raises(NotFound):
        client.subscriptions.close_stream(subscription.id, stream_id)
    cursors = client.subscriptions.cursors(subscription.id)
    with pytest.raises(Unprocessable, match="Session with stream id"):
        client.subscriptions.commit(subscription.id, stream_id, cursors)
    client.subscriptions.delete(subscription.id)
    with pytest.raises(NotFound):
        client.subscriptions.get(subscription.id)


def test_events_get_metadata_and_results(client, event_type):
    name = event_type()
    client.publish(name, [{"number": 1}, b'{"number": 2}', '{"number": 3}'])
    with pytest.raises(PublishingFailed, match="1 of 1 events were not stored") as caught:
        client.publish(name, [{"number": "one"}])
    assert caught.value.results[0].step == "validating"
    assert client.event_types.producers(name)[0].client


def test_events_without_metadata_stay_as_they_are(client, event_type):
    name = event_type(category="undefined", enrichment_strategies=[])
    client.publish(name, [{"number": 1}])
    stream = client.events(name, cursors=[Cursor(partition="0", offset=BEGIN)], stream_limit=1)
    (event,) = [event for batch in stream for event in batch.events]
    assert msgspec.json.decode(event) == {"number": 1}


def test_a_batch_with_a_key_is_stored_once(client, event_type):
    name = event_type()
    for compression in (None, "gzip", "zstd"):
        client.publish(name, [{"number": 1, "metadata": _metadata(1)}], idempotency_key="k", compression=compression)
    assert client.partitions.get(name, "0", consumed_offset=BEGIN).unconsumed_events == 1


def test_events_are_deleted_by_their_keys(client, event_type):
    name = event_type(cleanup_policy="compact", partition_strategy="hash", partition_key_fields=["number"])
    keyed = {"number": 1, "metadata": {**_metadata(1), "partition_compaction_key": "1"}}
    client.publish(name, [keyed])
    assert client.delete_events(name, [keyed]) == []


def test_settings_and_storages(client):
    admins = client.settings.admins()
    admins.readers = [Attribute.parse("service:stups_nakadi")]
    assert client.settings.set_admins(admins).readers == admins.readers
    client.settings.block("CONSUMER_APP", "client-tests")
    assert "client-tests" in client.settings.blacklist().consumers.apps
    client.settings.unblock("CONSUMER_APP", "client-tests")
    assert "client-tests" not in client.settings.blacklist().consumers.apps
    assert "kpi_collection" in {feature.feature for feature in client.settings.features()}
    rights = client.settings.rights()
    everything = ["READ", "WRITE", "ADMIN", "HISTORY"]
    assert rights == Rights(subject="unauthenticated", broker=everything, operations=rights.operations)
    assert set(rights.operations.values()) == {"allowed"}
    with pytest.raises(Problem):
        client.storages.delete("no-such-storage")
    if "client-tests" not in {storage.id for storage in client.storages.list()}:
        client.storages.create(Storage(id="client-tests", storage_type="embedded"))
    assert client.storages.get("client-tests").storage_type == "embedded"
    client.storages.delete("client-tests")
    assert client.storages.set_default("default").id == "default"


def test_history(client, event_type):
    name = event_type()
    resource = f"event-type:{name}"
    entries = [*client.audit.entries(resource=resource, states=True, order="asc")]
    assert [entry.kind for entry in entries] == ["event-type.created"]
    assert entries[0].after is not None
    assert len([*client.audit.entries(limit=2)]) == 2
    assert client.event_types.get(name, as_of=entries[0].position).name == name
    assert [*client.audit.denials()] == []
    assert client.log.checkpoint().count("\n") > 3
    assert client.log.keys()[-1].verifier == client.log.key()
    assert client.log.inclusion(1, size=2).hashes
    assert client.log.consistency(1, second=2).second == 2
    assert client.log.tile("0", "000.p/1") == client.log.tile("0", "000.p/1")
    checkpoint = client.log.checkpoint()
    with pytest.raises(Unprocessable):
        client.log.cosign(checkpoint)
    with pytest.raises(NotFound):
        client.log.checkpoint(cosigned=True)
    assert client.rebuilds.list() == []
    with pytest.raises(NotFound):
        client.rebuilds.get("0d9a5e1c-33a1-4b6b-8d6f-9e4f4c0f2a11")


def test_monitoring(client):
    assert client.monitoring.health()
    assert client.monitoring.live().ok
    assert client.monitoring.ready().checks
    assert client.monitoring.metrics().gauges
    assert "rioni_" in client.monitoring.metrics_text()
    assert client.monitoring.version()
    assert client.monitoring.openapi()["openapi"].startswith("3.1")
    assert "<html" in client.monitoring.docs()
    assert "hash" in client.event_types.partition_strategies()
    assert client.event_types.enrichment_strategies() == ["metadata_enrichment"]


def _metadata(number):
    return {"eid": f"0d1b6f0e-3c52-4d8c-9b50-{number:012d}", "occurred_at": "2026-01-02T03:04:05Z"}
