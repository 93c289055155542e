"""The requests of clients that no package registry offers any more, written down from what their sources send."""

import gzip
import json
import uuid

import httpx
import pytest

from tests.support.server import Stream


NAKADI_JAVA = {
    "Accept": "application/json",
    "Accept-Charset": "UTF-8",
    "Accept-Encoding": "gzip",
    "User-Agent": "nakadi-java/0.13.0",
    "X-Flow-Id": "njc-1764033000000-0123456789abcdef",
}
NAKADI_JAVA_BODY = {"Content-Type": "application/json; charset=utf8"}
KANADI = {"Accept-Encoding": "gzip, deflate", "X-Flow-ID": str(uuid.uuid4())}
SCHEMA = '{"properties": {"order": {"type": "string"}}, "required": ["order"]}'
CURSOR = {"partition", "offset", "event_type", "cursor_token"}
"""The members without which kanadi can't read a cursor."""
RESULT = {"eid", "publishing_status", "step", "detail"}


@pytest.fixture
def send(client):
    """Sends a request with headers and possibly a JSON body, and returns the answer, which must have a status."""

    def send(method, path, status, body=None, **headers) -> httpx.Response:
        content = None if body is None else json.dumps(body).encode()
        response = client.request(method, path, content=content, headers=headers)
        assert response.status_code == status, response.text
        return response

    return send


def _problem(response: httpx.Response) -> None:
    """Both clients read these members of a problem; nakadi-java chooses the exception by the member `status`."""
    body = response.json()
    assert body["status"] == response.status_code
    assert body["title"]
    assert body["detail"]


def _batches(response: httpx.Response) -> list[dict]:
    return [json.loads(line) for line in response.text.splitlines()]


def test_nakadi_java_manages_event_types_and_publishes(send):
    name = "nakadi-java.orders"
    headers = NAKADI_JAVA | NAKADI_JAVA_BODY
    event_type = {
        "enrichment_strategies": ["metadata_enrichment"],
        "name": name,
        "owning_application": "shop",
        "category": "data",
        "partition_strategy": "hash",
        "schema": {"type": "json_schema", "schema": SCHEMA},
        "partition_key_fields": ["order"],
        "read_scopes": [],
        "write_scopes": [],
        "cleanup_policy": "delete",
    }
    send("POST", "/event-types", 201, event_type, **headers)
    _problem(send("POST", "/event-types", 409, event_type, **headers))
    found = send("GET", f"/event-types/{name}", 200, **NAKADI_JAVA).json()
    send("PUT", f"/event-types/{name}", 200, found, **headers)
    assert name in {each["name"] for each in send("GET", "/event-types", 200, **NAKADI_JAVA).json()}
    assert send("GET", f"/event-types/{name}/schemas", 200, **NAKADI_JAVA).json().keys() == {"items", "_links"}
    send("POST", f"/event-types/{name}/schemas?fetch=true", 200, event_type["schema"], **headers)

    def event(order):
        metadata = {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-25T02:37:55.780123+01:00", "flow_id": "decafbad"}
        return {"metadata": metadata, "data_op": "C", "data_type": name, "data": {"order": order}}

    send("POST", f"/event-types/{name}/events", 200, [event("1")], **headers)
    results = send("POST", f"/event-types/{name}/events", 422, [event("2"), event(3)], **headers).json()
    assert [each["publishing_status"] for each in results] == ["aborted", "failed"]
    assert all(each.keys() >= RESULT for each in results)
    _problem(send("POST", "/event-types/no.such-type/events", 404, [event("4")], **headers))

    cursor = {"partition": "0", "offset": "BEGIN"}
    stream = f"/event-types/{name}/events?batch_limit=1&stream_limit=1"
    (batch,) = _batches(send("GET", stream, 200, **NAKADI_JAVA, **{"X-Nakadi-Cursors": json.dumps([cursor])}))
    assert batch["events"][0]["metadata"]["flow_id"] == "decafbad"
    assert batch["cursor"].keys() == {"partition", "offset"}
    shifts = [batch["cursor"] | {"shift": 0}]
    assert send("POST", f"/event-types/{name}/shifted-cursors", 200, shifts, **headers).json() == [batch["cursor"]]
    distances = [{"initial_cursor": batch["cursor"], "final_cursor": batch["cursor"]}]
    assert send("POST", f"/event-types/{name}/cursor-distances", 200, distances, **headers).json()[0]["distance"] == 0
    send("POST", f"/event-types/{name}/cursors-lag", 200, [batch["cursor"]], **headers)
    partition = send("GET", f"/event-types/{name}/partitions/0", 200, **NAKADI_JAVA).json()
    assert partition.keys() >= {"partition", "oldest_available_offset", "newest_available_offset"}


def test_nakadi_java_publishes_compressed_and_consumes_by_a_subscription(client, send):
    name = "nakadi-java.payments"
    headers = NAKADI_JAVA | NAKADI_JAVA_BODY
    event_type = {"name": name, "owning_application": "shop", "category": "undefined", "partition_strategy": "random"}
    send("POST", "/event-types", 201, event_type | {"schema": {"type": "json_schema", "schema": SCHEMA}}, **headers)
    compressed = gzip.compress(b'[{"order": "1"},{"order": "2"}]')
    path = f"/event-types/{name}/events"
    published = client.post(path, content=compressed, headers=headers | {"Content-Encoding": "gzip"})
    assert published.status_code == 200, published.text

    wanted = {"owning_application": "warehouse", "event_types": [name], "consumer_group": "stock", "read_from": "begin"}
    subscription = send("POST", "/subscriptions", 201, wanted | {"initial_cursors": []}, **headers).json()
    assert send("POST", "/subscriptions", 200, wanted, **headers).json()["id"] == subscription["id"]
    path = f"/subscriptions/{subscription['id']}"
    with client.stream("GET", f"{path}/events?max_uncommitted_events=20", headers=NAKADI_JAVA) as stream:
        lines = Stream(stream)
        cursor = json.loads(lines.line())["cursor"]
        checkpoint = headers | {"X-Nakadi-StreamId": stream.headers["X-Nakadi-StreamId"]}
        send("POST", f"{path}/cursors", 204, {"items": [cursor]}, **checkpoint)
        (result,) = send("POST", f"{path}/cursors", 200, {"items": [cursor]}, **checkpoint).json()["items"]
        assert result["result"] == "outdated"
        _problem(send("GET", f"{path}/events", 409, **NAKADI_JAVA))
    assert send("GET", f"{path}/cursors", 200, **NAKADI_JAVA).json()["items"][0]["offset"] == cursor["offset"]
    (stats,) = send("GET", f"{path}/stats", 200, **NAKADI_JAVA).json()["items"]
    assert stats["event_type"] == name
    send("DELETE", path, 204, **NAKADI_JAVA)
    _problem(send("GET", path, 404, **NAKADI_JAVA))


def test_kanadi_publishes_and_consumes_by_a_subscription(client, send):
    name = "kanadi.orders"
    headers = KANADI | {"Content-Type": "application/json"}
    _problem(send("GET", f"/event-types/{name}", 404, **KANADI))
    event_type = {
        "name": name,
        "owning_application": "shop",
        "category": "business",
        "enrichment_strategies": ["metadata_enrichment"],
        "schema": {"type": "json_schema", "schema": SCHEMA},
    }
    send("POST", "/event-types", 201, event_type, **headers)

    def event(order):
        metadata = {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-25T02:37:55.780123+01:00", "event_type": name}
        return {"order": order, "metadata": metadata}

    send("POST", f"/event-types/{name}/events", 200, [event("1"), event("2")], **headers)
    results = send("POST", f"/event-types/{name}/events", 422, [event(3)], **headers).json()
    assert results[0].keys() >= RESULT

    query = f"/subscriptions?owning_application=warehouse&event_type={name}"
    assert send("GET", query, 200, **KANADI).json()["items"] == []
    wanted = {"owning_application": "warehouse", "event_types": [name], "read_from": "begin"}
    subscription = send("POST", "/subscriptions", 201, wanted, **headers).json()
    assert [each["id"] for each in send("GET", query, 200, **KANADI).json()["items"]] == [subscription["id"]]

    path = f"/subscriptions/{subscription['id']}"
    with client.stream("GET", f"{path}/events?batch_limit=2", headers=KANADI | {"Connection": "Keep-Alive"}) as stream:
        batch = json.loads(Stream(stream).line())
        assert batch["cursor"].keys() == CURSOR
        assert {"eid", "occurred_at"} <= batch["events"][0]["metadata"].keys()
        commit = headers | {"X-Nakadi-StreamId": stream.headers["X-Nakadi-StreamId"]}
        send("POST", f"{path}/cursors", 204, {"items": [batch["cursor"]]}, **commit)
        (result,) = send("POST", f"{path}/cursors", 200, {"items": [batch["cursor"]]}, **commit).json()["items"]
        assert result["cursor"].keys() == CURSOR
        (stats,) = send("GET", f"{path}/stats", 200, **KANADI).json()["items"]
        assert stats["partitions"][0]["state"] == "assigned"
    begin = {"items": [batch["cursor"] | {"offset": "BEGIN"}]}
    send("PATCH", f"{path}/cursors", 204, begin, **headers)
    _problem(send("PATCH", f"{path}/cursors", 400, **KANADI))
