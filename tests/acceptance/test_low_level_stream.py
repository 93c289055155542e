"""`GET /event-types/{name}/events`: consumption contract 4."""

import json

import pytest

from tests.acceptance.conftest import event, partitions, problem
from tests.support.server import open_stream


BEGIN = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}


def publish(client, name, *order_ids):
    assert client.post(f"/event-types/{name}/events", json=[event(each) for each in order_ids]).status_code == 200


def test_batches_have_the_documented_form(client, create, name):
    create(name)
    publish(client, name, "1", "2", "3")
    path = f"/event-types/{name}/events?batch_limit=2&stream_limit=3&batch_flush_timeout=1"
    with client.stream("GET", path, headers=BEGIN) as response:
        assert response.headers["content-type"] == "application/x-json-stream"
        assert "deprecated" in response.headers["warning"]
        lines = list(response.iter_lines())
    first, second = map(json.loads, lines)
    assert lines[0].startswith('{"cursor":{"partition":"0","offset":"001-0001-000000000000000001"},"events":[{')
    assert [each["order_id"] for each in first["events"]] == ["1", "2"]
    assert second["cursor"]["offset"] == "001-0001-000000000000000002"
    assert [each["order_id"] for each in second["events"]] == ["3"]


def test_without_cursors_only_new_events_come(client, create, server, name):
    create(name)
    publish(client, name, "old")
    path = f"/event-types/{name}/events?batch_limit=1&stream_limit=1&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path) as stream:
        publish(client, name, "new")
        assert stream.events(1)[0]["order_id"] == "new"


def test_an_offset_names_the_last_event_read(client, create, name):
    create(name)
    publish(client, name, "0", "1", "2")
    headers = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"001-0001-000000000000000000"}]'}
    with open_stream(client, f"/event-types/{name}/events?stream_limit=2", headers=headers) as stream:
        assert [each["order_id"] for each in stream.events(2)] == ["1", "2"]


def test_an_idle_stream_is_kept_alive_and_ends_at_its_limit(client, create, name):
    create(name)
    path = f"/event-types/{name}/events?batch_flush_timeout=1&stream_keep_alive_limit=2"
    with open_stream(client, path, headers=BEGIN) as stream:
        batches = stream.batches()
    assert batches[0] == {"cursor": {"partition": "0", "offset": "001-0001--1"}}
    assert len([batch for batch in batches if "info" not in batch]) == 2


def test_a_stream_ends_at_its_timeout(client, create, name):
    create(name)
    path = f"/event-types/{name}/events?batch_flush_timeout=1&stream_timeout=1"
    with open_stream(client, path, headers=BEGIN) as stream:
        assert all("events" not in batch for batch in stream.batches())


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("batch_limit=0", "batch_limit can't be lower than 1"),
        ("batch_limit=5&stream_limit=2", "stream_limit can't be lower than batch_limit"),
        ("batch_flush_timeout=10&stream_timeout=5", "stream_timeout can't be lower than batch_flush_timeout"),
    ],
)
def test_parameters_have_limits(client, create, name, query, detail):
    create(name)
    problem(client.get(f"/event-types/{name}/events?{query}"), 422, detail)


def test_a_parameter_must_be_a_number(client, create, name):
    create(name)
    problem(client.get(f"/event-types/{name}/events?batch_limit=x"), 400)


@pytest.mark.parametrize(
    ("cursors", "status", "detail"),
    [
        ("x", 400, "incorrect syntax of X-nakadi-cursors header"),
        ("{}", 400, "incorrect syntax of X-nakadi-cursors header"),
        ("[]", 412, "invalid cursor format, partition: null offset: null"),
        ('[{"offset":"BEGIN"}]', 412, "partition must not be null"),
        ('[{"partition":"0"}]', 412, "offset must not be null"),
        ('[{"partition":"9","offset":"BEGIN"}]', 412, "non existing partition 9"),
        ('[{"partition":"0","offset":"x"}]', 412, "invalid offset x for partition 0"),
        ('[{"partition":"0","offset":"001-0001-000000000000000005"}]', 412, "is unavailable as retention"),
        ('[{"partition":"0","offset":"001-0009-000000000000000000"}]', 412, "is unavailable as retention"),
        ('[{"partition":"0","offset":"BEGIN"},{"partition":"0","offset":"BEGIN"}]', 412, "partition 0"),
    ],
)
def test_bad_cursors_are_refused(client, create, name, cursors, status, detail):
    create(name)
    problem(client.get(f"/event-types/{name}/events", headers={"X-Nakadi-Cursors": cursors}), status, detail)


def test_an_unknown_event_type_is_not_found(client):
    problem(client.get("/event-types/nope/events"), 404, "topic not found")


def test_all_partitions_are_streamed(client, create, name):
    create(name, partition_strategy="hash", partition_key_fields=["order_id"], **partitions(3))
    publish(client, name, *map(str, range(30)))
    cursors = json.dumps([{"partition": str(number), "offset": "BEGIN"} for number in range(3)])
    path = f"/event-types/{name}/events?batch_limit=4&stream_limit=30"
    with open_stream(client, path, headers={"X-Nakadi-Cursors": cursors}) as stream:
        assert sorted(int(each["order_id"]) for each in stream.events(30)) == list(range(30))


def test_a_stream_is_compressed_batch_by_batch_if_asked(client, create, name):
    create(name)
    publish(client, name, "1")
    path = f"/event-types/{name}/events?batch_flush_timeout=1"
    with client.stream("GET", path, headers=BEGIN | {"Accept-Encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert '"order_id":"1"' in next(response.iter_lines())


def test_a_blocked_consumer_is_refused(client, create, name):
    create(name)
    client.put(f"/settings/blacklist/CONSUMER_ET/{name}")
    problem(client.get(f"/event-types/{name}/events"), 403, "Application or event type is blocked")
