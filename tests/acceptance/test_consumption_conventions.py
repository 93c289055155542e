"""Conventions of all endpoints for consumers: reference common#status-codes."""

import gzip
import json
import uuid

import pytest
import zstandard

from tests.acceptance.conftest import event, partitions, problem, rows
from tests.support.server import open_stream


UNKNOWN = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"
NOPE = 'EventType "nope" does not exist.'
STREAM = {"X-Nakadi-StreamId": UNKNOWN}


@pytest.fixture(scope="module")
def known(server):
    """The name of an event type, and the id of a subscription to it."""
    name = f"test.conventions-{uuid.uuid4().hex[:8]}"
    with server.client() as client:
        definition = {"name": name, "owning_application": "shop", "category": "undefined"}
        schema = {"type": "json_schema", "schema": "{}"}
        assert client.post("/event-types", json=definition | {"schema": schema} | partitions(2)).status_code == 201
        body = {"owning_application": name, "event_types": [name]}
        yield name, client.post("/subscriptions", json=body).json()["id"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    rows(
        ("not parseable", "POST", "/subscriptions", b"{", 400, ""),
        ("not parseable: commit", "POST", "/subscriptions/{id}/cursors", b"[", 400, ""),
        ("not parseable: reset", "PATCH", "/subscriptions/{id}/cursors", b"", 400, ""),
        ("not parseable: stream", "POST", "/subscriptions/{id}/events", b"", 400, ""),
        ("not parseable: arithmetic", "POST", "/event-types/{name}/cursors-lag", b"{", 400, ""),
        (
            "enum",
            "POST",
            "/subscriptions",
            b'{"owning_application":"x","event_types":["x"],"read_from":"x"}',
            400,
            "Illegal enum value: 'x'. Possible values: [begin, end, cursors]",
        ),
        ("wrong JSON type", "POST", "/subscriptions/{id}/events", b'{"batch_limit":[]}', 400, "batch_limit"),
        ("wrong JSON type: no object", "POST", "/subscriptions/{id}/events", b"[]", 400, "object"),
        ("no number: stream", "GET", "/subscriptions/{id}/events?commit_timeout=1.5", None, 400, "commit_timeout"),
        ("no number: low-level", "GET", "/event-types/{name}/events?stream_limit=x", None, 400, "stream_limit"),
        ("no number: list", "GET", "/subscriptions?limit=x", None, 400, "limit"),
        ("missing header", "POST", "/subscriptions/{id}/cursors", b'{"items":[]}', 400, "X-Nakadi-StreamId"),
        ("event type unknown", "GET", "/event-types/nope/partitions", None, 404, NOPE),
        ("event type unknown: arithmetic", "POST", "/event-types/nope/shifted-cursors", b"[]", 404, NOPE),
        (
            "subscription unknown",
            "GET",
            f"/subscriptions/{UNKNOWN}",
            None,
            404,
            f'Subscription with id "{UNKNOWN}" does not exist',
        ),
        ("limit", "GET", "/subscriptions?limit=1001", None, 400, "should have value between 1 and 1000"),
        ("offset", "GET", "/subscriptions?offset=-1", None, 400, "'offset' parameter can't be lower than 0"),
        (
            "bean validation",
            "PATCH",
            "/subscriptions/{id}/cursors",
            b'{"items":[{"partition":"0","offset":"0"}]}',
            422,
            'Field "items[0].event_type" must not be null\n',
        ),
        ("gzip on GET", "GET", "/subscriptions/{id}/events", None, 406, "GET method doesn't support gzip content"),
        ("gzip on PATCH", "PATCH", "/subscriptions/{id}/cursors", b"{}", 406, "PATCH method doesn't support gzip"),
    ),
)  # fmt: skip
def test_every_error_is_a_problem(client, known, method, path, body, status, detail):
    name, subscription_id = known
    headers = {"Content-Encoding": "gzip"} if status == 406 else {}
    path = path.format(name=name, id=subscription_id)
    found = problem(client.request(method, path, content=body, headers=headers), status, detail)
    assert ("type" in found) == (status == 422 and "Field" in detail)


def test_each_field_that_violates_its_constraint_is_listed(client):
    """Reference common#status-codes."""
    answer = client.post("/subscriptions", json={"owning_application": "", "event_types": []})
    assert answer.json() == {
        "type": "http://httpstatus.es/422",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": 'Field "owning_application" must contain at least one character\n'
        'Field "event_types" must contain at least one element\n',
    }


STREAMS = rows(("4", "/event-types/{name}/events"), ("8", "/subscriptions/{id}/events"))


@pytest.mark.parametrize("path", STREAMS)
def test_streams_carry_the_headers_of_every_answer(client, known, path):
    """Reference common#flow-id: the flow id is echoed or generated, the span context repeated."""
    name, subscription_id = known
    path = path.format(name=name, id=subscription_id)
    with client.stream("GET", path, headers={"X-Flow-Id": "mine", "span_ctx": '{"a":"b"}'}) as response:
        assert response.headers["x-flow-id"] == "mine"
        assert json.loads(response.headers["span_ctx"]) == {"a": "b"}
    with client.stream("GET", path) as response:
        assert len(response.headers["x-flow-id"]) == 24
        assert response.headers["x-flow-id"].isalnum()


@pytest.mark.parametrize("path", STREAMS)
def test_streams_are_compressed_and_each_batch_is_flushed(client, create, subscribe, name, path):
    """Reference common#flow-id: no batch waits in a compressor for the next one."""
    create(name)
    subscription_id = subscribe(name, read_from="begin")
    path = path.format(name=name, id=subscription_id) + "?batch_flush_timeout=30"
    headers = {"Accept-Encoding": "gzip", "X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
    with open_stream(client, path, headers=headers) as stream:
        assert stream.response.headers["content-encoding"] == "gzip"
        for number in ("1", "2"):
            assert client.post(f"/event-types/{name}/events", json=[event(number)]).status_code == 200
            assert stream.events(1)[0]["order_id"] == number


@pytest.mark.parametrize(
    ("coding", "compress"),
    rows(("gzip", "gzip", gzip.compress), ("zstd", "zstd", zstandard.ZstdCompressor().compress)),
)
def test_bodies_may_be_compressed(client, known, coding, compress):
    name, subscription_id = known
    commit = {"items": [{"event_type": name, "partition": "0", "offset": "0", "cursor_token": ""}]}
    for path, body, status, detail in (
        (f"/event-types/{name}/cursors-lag", [{"partition": "0", "offset": "BEGIN"}], 200, '"unconsumed_events":0'),
        (f"/subscriptions/{subscription_id}/cursors", commit, 422, f"Session with stream id {UNKNOWN} not found"),
        (f"/subscriptions/{subscription_id}/events", {"batch_limit": 0}, 422, "batch_limit can't be lower than 1"),
    ):
        headers = {"Content-Encoding": coding} | STREAM
        answer = client.post(path, content=compress(json.dumps(body).encode()), headers=headers)
        assert answer.status_code == status
        assert detail in answer.text
