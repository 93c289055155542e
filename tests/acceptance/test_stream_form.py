"""The requests and the output of streams of subscriptions.

Source: reference streams#parameters, streams#json-batches, streams#opening, streams#batches.
"""

import json
import re
import uuid

import pytest

from tests.acceptance.conftest import event, partitions, problem, rows
from tests.support.server import Stream, open_stream
from tests.support.waiting import wait_until


UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
START = {"read_from": "begin"}


@pytest.fixture
def path(client, create, subscribe, name):
    """The path of the streams of a subscription to three events."""
    create(name)
    # White space and the order of members are the publisher's.
    events = [b'{ "order_id": "%d", "metadata": %b }' % (n, json.dumps(event()["metadata"]).encode()) for n in range(3)]
    assert client.post(f"/event-types/{name}/events", content=b"[" + b",".join(events) + b"]").status_code == 200
    return f"/subscriptions/{subscribe(name, **START)}/events"


def test_a_stream_consists_of_lines_of_documented_form(client, path, name):
    """Reference streams#json-batches: order of members, absent ones, tokens, and events as they are stored.

    Source: reference streams#response-headers, streams#keep-alives.
    """
    with client.stream("GET", f"{path}?batch_limit=3&batch_flush_timeout=1&stream_keep_alive_limit=1") as response:
        assert response.headers["content-type"] == "application/x-json-stream"
        assert response.headers["transfer-encoding"] == "chunked"
        assert re.fullmatch(UUID, response.headers["x-nakadi-streamid"])
        stream = Stream(response)
        first, second = stream.line(), stream.line()
    begin = (
        '{"cursor":{"partition":"0","offset":"001-0001-000000000000000002",'
        f'"event_type":"{re.escape(name)}","cursor_token":"({UUID})"}}'
    )
    events = r',"events":\[\{ "order_id": "0", .*\},\{ "order_id": "1", .*\},\{ "order_id": "2", .*\}\]'
    batch = re.fullmatch(begin + events + r',"info":\{"debug":"Stream started"\}\}', first)
    keep_alive = re.fullmatch(begin + r"\}", second)
    assert batch, first
    assert keep_alive, second
    assert batch[1] != keep_alive[1]


def test_the_start_of_a_stream_and_the_reason_of_its_end_are_logged(client, server, path):
    """Reference operations#latency-buckets."""
    flow_id = str(uuid.uuid4())
    with open_stream(client, f"{path}?batch_limit=3", headers={"X-Flow-Id": flow_id}) as stream:
        closed = client.delete(f"{path.removesuffix('/events')}/streams/{stream.stream_id}")
        assert closed.status_code == 204
        stream.batches()

    def logged():
        return [line for line in server.lines if flow_id in line and stream.stream_id in line]

    wait_until(lambda: len(logged()) == 2)
    started, ended = logged()
    assert "stream started" in started
    assert all(each in started for each in ("batch_limit=3", "commit_timeout_s=60", "client=unauthenticated", path))
    assert "stream ended" in ended
    assert "reason=session_ended" in ended


@pytest.mark.parametrize(
    ("method", "query", "body", "sizes"),
    rows(
        ("GET: the query", "GET", "?batch_limit=2&stream_limit=3&batch_flush_timeout=1", None, [2, 1]),
        ("POST: the body", "POST", "", {"batch_limit": 2, "stream_limit": 3, "batch_flush_timeout": 1}, [2, 1]),
        ("POST: not the query", "POST", "?batch_limit=3&stream_limit=0", {"stream_limit": 3}, [1, 1, 1]),
        ("POST: an empty object", "POST", "", {}, [1, 1, 1]),
        ("POST: null is absent", "POST", "", {"batch_limit": None, "partitions": None}, [1, 1, 1]),
        ("POST: unknown members", "POST", "", {"unknown": [], "weight": 7}, [1, 1, 1]),
        ("GET: no partitions", "GET", "?partitions=nope", None, [1, 1, 1]),
        ("GET: a body is ignored", "GET", "", {"batch_limit": 3}, [1, 1, 1]),
        ("a window", "GET", "?batch_limit=3&max_uncommitted_events=2", None, [2]),
    ),
)
def test_parameters_come_from_the_query_or_the_body(client, path, method, query, body, sizes):
    """Reference streams#methods."""
    with open_stream(client, path + query, method, json=body) as stream:
        assert [len(stream.filled_batch()["events"]) for _ in sizes] == sizes


@pytest.mark.parametrize(
    ("accept", "media_type"),
    rows(
        ("nothing", None, "application/x-json-stream"),
        ("anything", "*/*", "application/x-json-stream"),
        ("JSON", "application/x-json-stream", "application/x-json-stream"),
        ("Avro", "application/avro-binary", "application/x-json-stream"),
        ("Avro, each batch behind its length", "application/avro-binary;framing=length", "application/avro-binary"),
        ("Avro in another frame", "application/avro-binary; framing=x", "application/x-json-stream"),
        ("Avro and something else", "application/avro-binary, application/json", "application/x-json-stream"),
        ("something odd", "image/png", "application/x-json-stream"),
    ),
)
def test_the_accept_header_chooses_the_form(client, path, accept, media_type):
    """Reference streams#avro-batches."""
    with client.stream("GET", path, headers={} if accept is None else {"Accept": accept}) as response:
        assert response.headers["content-type"].partition(";")[0] == media_type


@pytest.mark.parametrize(
    ("content", "detail"),
    rows(
        ("no body", b"", ""),
        ("no JSON", b"{", ""),
        ("no object", b"[]", "object"),
        ("batch_limit of a wrong type", b'{"batch_limit":"x"}', "batch_limit must be an integer"),
        ("commit_timeout of a wrong type", b'{"commit_timeout":1.5}', "commit_timeout must be an integer"),
        ("stream_limit of a wrong type", b'{"stream_limit":true}', "stream_limit must be an integer"),
        ("partitions of a wrong type", b'{"partitions":"0"}', "partitions must be a list"),
        ("partitions without a member", b'{"partitions":[{"partition":"0"}]}', "event_type and partition"),
    ),
)
def test_an_unparsable_body_of_a_stream_request_is_rejected(client, path, content, detail):
    problem(client.post(path, content=content), 400, detail)


def test_every_batch_is_of_one_partition_with_the_cursor_of_its_last_event(client, create, subscribe, name):
    """Reference streams#json-batches."""
    create(name, partition_strategy="user_defined", **partitions(3))
    for _ in range(2):
        events = [event(f"{partition}", metadata={"partition": partition}) for partition in "012" for _ in range(2)]
        assert client.post(f"/event-types/{name}/events", json=events).status_code == 200
    query = "?batch_limit=4&max_uncommitted_events=100&batch_flush_timeout=30"
    with open_stream(client, f"/subscriptions/{subscribe(name, **START)}/events{query}") as stream:
        batches = [stream.filled_batch() for _ in range(3)]
    assert sorted(batch["cursor"]["partition"] for batch in batches) == ["0", "1", "2"]
    for batch in batches:
        assert [each["order_id"] for each in batch["events"]] == [batch["cursor"]["partition"]] * 4
        assert batch["cursor"]["offset"] == "001-0001-000000000000000003"
    assert [batch.get("info") for batch in batches] == [{"debug": "Stream started"}, None, None]
    assert len({uuid.UUID(batch["cursor"]["cursor_token"]) for batch in batches}) == 3
