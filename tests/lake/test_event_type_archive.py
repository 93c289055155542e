"""Archives around gaps between events: retention, deletions, timelines; and annotations that ask for an archive."""

import json

import pytest

from rioni.domain.event_types.event_type import MATERIALIZE, PERIOD, REASON
from rioni.lake.reader import marked_event_types
from tests.support.lake import FORMATS, ArchiveUnderTest, create_orders, publish_orders, stored
from tests.support.waiting import wait_until


@pytest.fixture(params=FORMATS[:1])
def lake(request, server, tmp_path):
    return ArchiveUnderTest(url=server.url, to=str(tmp_path / "lake"), format_=request.param)


def keep_for(client, name, retention_ms):
    body = client.get(f"/event-types/{name}").json() | {"options": {"retention_time": retention_ms}}
    assert client.put(f"/event-types/{name}", json=body).status_code == 200


def test_events_that_retention_removes_before_they_are_archived_raise_an_alarm_once(client, lake, caplog):
    name = create_orders(client, partition_strategy="random", default_statistic=None)
    publish_orders(client, name, {"order": "archived"})
    lake.archive(name)
    publish_orders(client, name, {"order": "lost"}, {"order": "lost, too"})
    keep_for(client, name, 1)
    partition = f"/event-types/{name}/partitions/0"
    wait_until(lambda: client.get(partition).json()["oldest_available_offset"].endswith("3"))
    keep_for(client, name, 86_400_000)
    publish_orders(client, name, {"order": "later"})
    outcome = lake.archive(name)[name]
    assert (outcome.archived, outcome.lost) == (1, 2)
    assert lake.metric("lost_events_total", name) == 2
    assert any(each.levelname == "ERROR" and "2 events" in each.message for each in caplog.records)
    assert lake.archive(name)[name].lost == 0
    assert sorted(lake.table(name)["order"].to_pylist()) == ["archived", "later"]


def test_places_without_events_do_not_shift_the_offsets(client, lake):
    """Streams do not deliver deletions: the offsets of the events around them are read one by one."""
    name = create_orders(client, cleanup_policy="compact", partition_strategy="random", default_statistic=None)

    def keyed(key: str) -> dict:
        metadata = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-01-02T03:04:05Z"}
        return {"order": key, "metadata": metadata | {"partition_compaction_key": key}}

    publish_orders(client, name, keyed("a"), keyed("b"))
    deleted = client.post(f"/event-types/{name}/deleted-events", json=[keyed("a")])
    assert deleted.status_code == 200
    publish_orders(client, name, keyed("c"), keyed("d"))
    lake.archive(name)
    rows = lake.table(name).to_pylist()
    places = {row["order"]: int(row["_offset"].rpartition("-")[2]) for row in rows}
    assert {order: places[order] for order in "bcd"} == {"b": 1, "c": 3, "d": 4}
    assert lake.archived(name) == stored(client, name)


def test_an_archive_goes_on_in_the_next_timeline(client, lake):
    name = create_orders(client)
    publish_orders(client, name, *({"order": f"o{n}"} for n in range(20)))
    lake.archive(name)
    assert client.post("/storages", json={"id": "other", "storage_type": "embedded", "kafka_configuration": {}})
    assert client.post(f"/event-types/{name}/timelines", json={"storage_id": "other"}).status_code == 201
    publish_orders(client, name, *({"order": f"o{n}"} for n in range(20, 40)))
    assert lake.archive(name)[name].archived == 20
    orders = lake.table(name)["order"].to_pylist()
    assert sorted(orders) == sorted(f"o{n}" for n in range(40))
    assert {each[:8] for each in lake.table(name)["_offset"].to_pylist()} == {"001-0001", "001-0002"}


def test_without_a_name_event_types_are_archived_whose_annotation_says_so(client, broker, lake):
    annotations = {MATERIALIZE: "on", PERIOD: "1 week", REASON: "tests"}
    wanted = create_orders(client, annotations=annotations)
    other = create_orders(client, annotations={MATERIALIZE: "off"})
    publish_orders(client, wanted, {"order": "a"})
    publish_orders(client, other, {"order": "a"})
    assert marked_event_types(broker) == [wanted]
    assert {name: each.archived for name, each in lake.archive().items()} == {wanted: 1}
    client.delete(f"/event-types/{wanted}")


def test_events_without_metadata_are_archived_by_the_day_of_archiving(client, lake):
    name = create_orders(
        client, category="undefined", enrichment_strategies=[], partition_strategy="random", partition_key_fields=[]
    )
    assert client.post(f"/event-types/{name}/events", json=[{"order": "a"}]).status_code == 200
    assert lake.archive(name)[name].archived == 1
    (event,) = lake.table(name)["_event"].to_pylist()
    assert json.loads(event) == {"order": "a"}
