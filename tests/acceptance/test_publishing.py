"""`POST /event-types/{name}/events`: reference publishing#publish-events."""

import gzip
import json
import uuid

import pytest
import zstandard

from tests.acceptance.conftest import event, partitions, problem
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes


def read_all(client, name, count, partition_count=1):
    """All events of an event type as the low-level stream gives them, as text."""
    cursors = json.dumps([{"partition": str(number), "offset": "BEGIN"} for number in range(partition_count)])
    path = f"/event-types/{name}/events?batch_limit=1&stream_limit={count}"
    with client.stream("GET", path, headers={"X-Nakadi-Cursors": cursors}) as response:
        return [line for line in response.iter_lines() if '"events"' in line]


def test_a_stored_batch_has_an_empty_answer(client, create, name):
    create(name)
    response = client.post(f"/event-types/{name}/events", json=[event("1"), event("2")])
    assert (response.status_code, response.content) == (200, b"")


def test_an_empty_batch_is_accepted(client, create, name):
    create(name)
    assert client.post(f"/event-types/{name}/events", json=[]).status_code == 200


def test_metadata_is_enriched_and_the_rest_kept_byte_for_byte(client, create, name):
    """Reference publishing#stored-form, publishing#enrichment."""
    create(name)
    eid = str(uuid.uuid4())
    body = (
        b'[{"order_id":"1", "big":123456789012345678 ,"float":1.10,"text":"\\u00e4\\/",'
        b'"metadata":{"eid":"%b","occurred_at":"2026-11-20T10:00:00Z"},"last":[1, 2]}]' % eid.encode()
    )
    response = client.post(f"/event-types/{name}/events", content=body, headers={"X-Flow-Id": "my-flow"})
    assert response.status_code == 200, response.text
    (line,) = read_all(client, name, 1)
    assert '"big":123456789012345678' in line
    assert '"float":1.10' in line
    assert '"text":"\\u00e4\\/"' in line
    metadata = json.loads(line)["events"][0]["metadata"]
    assert metadata.pop("received_at").endswith("Z")
    assert metadata == {
        "eid": eid,
        "occurred_at": "2026-11-20T10:00:00Z",
        "published_by": "unauthenticated",
        "event_type": name,
        "flow_id": "my-flow",
        "partition": "0",
        "version": "1.0.0",
    }


def test_an_invalid_event_rejects_the_whole_batch(client, create, name):
    create(name)
    events = [event("1"), event(2), event("3")]
    response = client.post(f"/event-types/{name}/events", json=events)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/json"
    assert response.json() == [
        {
            "publishing_status": "aborted",
            "step": "validating",
            "detail": "",
            "eid": events[0]["metadata"]["eid"],
            "partition": None,
        },
        {
            "publishing_status": "failed",
            "step": "validating",
            "detail": "#/order_id: expected type: String, found: Integer",
            "eid": events[1]["metadata"]["eid"],
            "partition": None,
        },
        {
            "publishing_status": "aborted",
            "step": "none",
            "detail": "",
            "eid": events[2]["metadata"]["eid"],
            "partition": None,
        },
    ]
    assert client.get(f"/event-types/{name}/partitions/0").json()["newest_available_offset"] == "001-0001--1"


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"eid": "x"}, "#/metadata/eid"),
        ({"occurred_at": "yesterday"}, "#/metadata/occurred_at"),
        ({"event_type": "other"}, "#/metadata/event_type"),
        ({"received_at": "2026-11-20T10:00:00Z"}, "#/metadata: extraneous key [received_at] is not permitted"),
    ],
)
def test_metadata_is_validated_against_its_schema(client, create, name, changes, detail):
    create(name)
    response = client.post(f"/event-types/{name}/events", json=[event(metadata=changes)])
    assert response.status_code == 422
    assert detail in response.json()[0]["detail"]


def test_an_event_without_metadata_is_rejected_in_the_results(client, create, name):
    create(name)
    response = client.post(f"/event-types/{name}/events", json=[{"order_id": "1"}])
    assert response.status_code == 422
    (item,) = response.json()
    assert item["detail"] == "#: required key [metadata] not found"
    assert "eid" not in item


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{}", b"[1]", b"[{]", b"[{}", b'[{"a":1,}]', b"[NaN]", b"\xff\xfe", b"[" * 10000]
)
def test_a_body_that_is_not_an_array_of_events_is_rejected(client, create, name, body):
    create(name)
    problem(client.post(f"/event-types/{name}/events", content=body), 400, "Error occurred when parsing event(s).")


def test_an_unparsable_body_is_rejected_even_for_an_unknown_event_type(client):
    problem(client.post("/event-types/nope/events", content=b"{"), 400)
    problem(client.post("/event-types/nope/events", json=[]), 404, 'EventType "nope" does not exist.')


def test_an_event_may_not_be_too_large(client, create, name):
    """Reference publishing#event-size."""
    create(name)
    response = client.post(f"/event-types/{name}/events", json=[event("x" * 1_000_000)])
    assert response.status_code == 422
    assert "Event too large" in response.json()[0]["detail"]
    assert "max size is 999000 bytes" in response.json()[0]["detail"]


def test_a_body_may_not_be_too_large(client, create, name):
    """Reference publishing#batch-limits, common#body-limits."""
    create(name)
    body = b"[" + b" " * 60_000_000 + b"]"
    problem(client.post(f"/event-types/{name}/events", content=body), 413, "larger than")
    problem(
        client.post(f"/event-types/{name}/events", content=gzip.compress(body), headers={"Content-Encoding": "gzip"}),
        413,
        "larger than",
    )


@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)]
)
def test_compressed_bodies_are_accepted(client, create, name, coding, compress):
    """Reference common#content-encoding."""
    create(name)
    body, headers = json.dumps([event()]).encode(), {"Content-Encoding": coding}
    path = f"/event-types/{name}/events"
    assert client.post(path, content=compress(body), headers=headers).status_code == 200
    problem(client.post(path, content=body, headers=headers), 400, "Not in")
    problem(client.post(path, content=compress(body)[:-3], headers=headers), 400, f"Not in {coding.upper()} format")


def test_events_of_one_key_go_to_one_partition(client, create, name):
    """Reference publishing#hash-strategy, cursors#key-order."""
    create(name, partition_strategy="hash", partition_key_fields=["order_id"], **partitions(3))
    keys = [f"key-{number}" for number in range(20)]
    for _ in range(3):
        client.post(f"/event-types/{name}/events", json=[event(key) for key in keys])
    seen = {}
    for line in read_all(client, name, 60, 3):
        batch = json.loads(line)
        for each in batch["events"]:
            assert each["metadata"]["partition"] == batch["cursor"]["partition"]
            seen.setdefault(each["order_id"], set()).add(batch["cursor"]["partition"])
    assert set(seen) == set(keys)
    assert all(len(used) == 1 for used in seen.values())
    assert len(set.union(*seen.values())) == 3


def test_the_publisher_may_choose_the_partition(client, create, name):
    """Reference publishing#user-defined-strategy."""
    create(name, partition_strategy="user_defined", **partitions(3))
    path = f"/event-types/{name}/events"
    assert client.post(path, json=[event(metadata={"partition": "2"})]).status_code == 200
    newest = [each["newest_available_offset"] for each in client.get(f"/event-types/{name}/partitions").json()]
    assert newest == ["001-0001--1", "001-0001--1", "001-0001-000000000000000000"]
    response = client.post(path, json=[event(metadata={"partition": "9"})])
    assert response.status_code == 422
    assert response.json()[0]["step"] == "partitioning"
    assert "Invalid partition specified when publishing event: 9" in response.json()[0]["detail"]


def test_data_changes_are_validated_and_enriched(client, create, name):
    create(name, category="data")
    change = {"data_type": "order", "data_op": "C", "data": {"order_id": "1"}, "metadata": event()["metadata"]}
    assert client.post(f"/event-types/{name}/events", json=[change]).status_code == 200
    response = client.post(f"/event-types/{name}/events", json=[change | {"data_op": "X"}])
    assert response.status_code == 422
    assert "#/data_op: X is not a valid enum value" in response.json()[0]["detail"]


def test_undefined_events_are_stored_as_they_are(client, create, name):
    create(name, category="undefined", enrichment_strategies=[], schema={"type": "json_schema", "schema": "{}"})
    assert client.post(f"/event-types/{name}/events", content=b'[{"a": 1}]').status_code == 200
    (line,) = read_all(client, name, 1)
    assert json.loads(line)["events"] == [{"a": 1}]


def test_a_blocked_producer_is_rejected_until_it_is_unblocked(client, create, name):
    """Reference settings-and-storages#blacklist-types."""
    create(name)
    entry = f"/settings/blacklist/PRODUCER_ET/{name}"
    assert client.put(entry).status_code == 204
    problem(client.post(f"/event-types/{name}/events", json=[event()]), 403, "Application or event type is blocked")
    assert client.delete(entry).status_code == 204
    assert client.post(f"/event-types/{name}/events", json=[event()]).status_code == 200


def test_published_events_are_in_order(client, create, name):
    """Reference cursors#partition-order."""
    create(name)
    for start in range(0, 100, 10):
        client.post(f"/event-types/{name}/events", json=[event(str(number)) for number in range(start, start + 10)])
    path = f"/event-types/{name}/events?batch_limit=7&stream_limit=100"
    headers = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
    with open_stream(client, path, headers=headers) as stream:
        assert [each["order_id"] for each in stream.events(100)] == [str(number) for number in range(100)]


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ({}, None),
        ({"span_ctx": '{"trace":"1"}'}, {"trace": "1"}),
        ({"span_ctx": "no json"}, None),
        (
            {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"},
            {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"},
        ),
    ],
)
def test_events_keep_the_span_context_of_their_request(client, create, name, headers, kept):
    """Reference common#span-context."""
    create(name)
    own = {"span_ctx": {"trace": "mine"}}
    path = f"/event-types/{name}/events"
    response = client.post(path, json=[event(), event(metadata=own)], headers=headers)
    assert json.loads(response.headers["span_ctx"]) == (kept or {})
    stored = [json.loads(line)["events"][0]["metadata"].get("span_ctx") for line in read_all(client, name, 2)]
    assert stored == [kept, own["span_ctx"]]


def test_every_answer_carries_a_span_context(client):
    """Reference common#span-context."""
    assert client.get("/event-types/nope").headers["span_ctx"] == "{}"
    assert client.put("/event-types//x").headers["span_ctx"] == "{}"
