"""`GET /event-types/{name}/events`: reference low-level-streams#checks.

Source: reference low-level-streams#opening, low-level-streams#response.
"""

import json

import pytest

from tests.acceptance.conftest import event, partitions, problem, publish_orders, rows
from tests.support.server import Stream, open_stream


pytestmark = pytest.mark.both_modes


BEGIN = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
SYNTAX = "incorrect syntax of X-nakadi-cursors header"


WARNING = (
    "299 - nakadi - the Low-level API is deprecated and will be removed from a future release. "
    "Please consider migrating to the Subscriptions API."
)


def test_batches_have_the_documented_form(client, create, name):
    """Reference low-level-streams#json-batches, low-level-streams#response-headers, byte by byte."""
    create(name)
    publish_orders(client, name, "1", "2", "3")
    path = f"/event-types/{name}/events?batch_limit=2&stream_limit=3&batch_flush_timeout=1"
    with client.stream("GET", path, headers=BEGIN) as response:
        assert response.headers["content-type"] == "application/x-json-stream"
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers["warning"] == WARNING
        assert "x-nakadi-streamid" not in response.headers
        lines = response.read().decode().splitlines(keepends=True)
    stored = [json.dumps(each, separators=(",", ":")) for line in lines for each in json.loads(line)["events"]]
    assert [json.loads(each)["order_id"] for each in stored] == ["1", "2", "3"]
    cursor = '{{"cursor":{{"partition":"0","offset":"001-0001-00000000000000000{}"}},"events":[{}]}}\n'
    assert lines == [cursor.format(1, ",".join(stored[:2])), cursor.format(2, stored[2])]


def test_keep_alives_have_the_documented_form(client, create, name):
    """Reference low-level-streams#json-batches: the cursor is that of the last event, or the start of the stream.

    Source: reference low-level-streams#keep-alives.
    """
    create(name)
    path = f"/event-types/{name}/events?batch_flush_timeout=1&stream_keep_alive_limit=1"
    for offset in ("001-0001--1", "001-0001-000000000000000000"):
        answer = client.get(path)
        assert answer.text == f'{{"cursor":{{"partition":"0","offset":"{offset}"}}}}\n'
        publish_orders(client, name, "1")


def test_without_cursors_only_new_events_are_sent(client, create, server, name):
    """Reference low-level-streams#start-position."""
    create(name)
    publish_orders(client, name, "old")
    path = f"/event-types/{name}/events?batch_limit=1&stream_limit=1&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path) as stream:
        publish_orders(client, name, "new")
        assert stream.events(1)[0]["order_id"] == "new"


@pytest.mark.parametrize(
    ("cursors", "expected"),
    rows(
        ("an offset is exclusive", {"0": "001-0001-000000000000000000"}, ["01", "02"]),
        ("BEGIN", {"0": "BEGIN"}, ["00", "01", "02"]),
        ("before the first event", {"1": "001-0001--1"}, ["10", "11", "12"]),
        ("a plain number", {"1": "1"}, ["12"]),
        ("all that are listed", {"1": "1", "0": "1"}, ["02", "12"]),
    ),
)
def test_only_listed_partitions_are_read_from_their_cursors(client, create, name, cursors, expected):
    """Reference cursors#exclusive-offsets, low-level-streams#cursors-header."""
    create(name, partition_strategy="user_defined", **partitions(3))
    for partition in "012":
        events = [event(f"{partition}{number}", metadata={"partition": partition}) for number in range(3)]
        assert client.post(f"/event-types/{name}/events", json=events).status_code == 200
    listed = [{"partition": partition, "offset": offset} for partition, offset in cursors.items()]
    query = "batch_flush_timeout=1&stream_keep_alive_limit=1"
    headers = {"X-Nakadi-Cursors": json.dumps(listed)}
    with open_stream(client, f"/event-types/{name}/events?{query}", headers=headers) as stream:
        batches = stream.batches()
    assert sorted(each["order_id"] for batch in batches for each in batch.get("events", [])) == expected
    assert {batch["cursor"]["partition"] for batch in batches} == cursors.keys()


def test_an_idle_stream_is_kept_alive_and_ends_at_its_limit(client, create, name):
    """Reference low-level-streams#keep-alive-limit."""
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
    rows(
        ("batch_limit", "batch_limit=0", "batch_limit can't be lower than 1"),
        ("events_per_second_limit", "events_per_second_limit=-1", "events_per_second_limit can't be lower than 0"),
        ("stream_limit", "batch_limit=5&stream_limit=2", "stream_limit"),
        (
            "stream_timeout",
            "batch_flush_timeout=10&stream_timeout=5",
            "stream_timeout",
        ),
    ),
)
def test_parameters_have_limits(client, create, name, query, detail):
    """Reference low-level-streams#parameter-errors."""
    create(name)
    problem(client.get(f"/event-types/{name}/events?{query}"), 422, detail)


def test_a_parameter_must_be_a_number(client, create, name):
    create(name)
    problem(client.get(f"/event-types/{name}/events?batch_limit=x"), 400)


@pytest.mark.parametrize(
    ("cursors", "status", "detail"),
    rows(
        ("no JSON", "x", 400, SYNTAX),
        ("no array", "{}", 400, SYNTAX),
        ("null", "null", 400, SYNTAX),
        ("not of objects", "[1]", 400, SYNTAX),
        ("an object with numbers", '[{"partition":0,"offset":"BEGIN"}]', 400, SYNTAX),
        ("empty", "[]", 412, "invalid cursor format, partition: null offset: null"),
        ("partition missing", '[{"offset":"BEGIN"}]', 412, "partition must not be null"),
        ("partition null", '[{"partition":null,"offset":"BEGIN"}]', 412, "partition must not be null"),
        ("offset missing", '[{"partition":"0"}]', 412, "offset must not be null"),
        ("offset null", '[{"partition":"0","offset":null}]', 412, "offset must not be null"),
        ("unknown partition", '[{"partition":"9","offset":"BEGIN"}]', 412, "non existing partition 9"),
        ("malformed offset", '[{"partition":"0","offset":"x"}]', 412, "invalid offset x for partition 0"),
        ("beyond the last", '[{"partition":"0","offset":"5"}]', 412, "offset 5 for partition 0 event type"),
        (
            "unknown timeline",
            '[{"partition":"0","offset":"001-0009-000000000000000000"}]',
            412,
            "is unavailable as retention time of data elapsed. PATCH partition offset with valid and available offset",
        ),
        (
            "the same partition twice",
            '[{"partition":"0","offset":"BEGIN"},{"partition":"0","offset":"BEGIN"}]',
            412,
            "more than one cursor for partition 0",
        ),
    ),
)
def test_bad_cursors_are_rejected(client, create, name, cursors, status, detail):
    """Reference low-level-streams#cursor-errors."""
    create(name)
    problem(client.get(f"/event-types/{name}/events", headers={"X-Nakadi-Cursors": cursors}), status, detail)


def test_an_unavailable_cursor_is_answered_with_the_available_ones(client, create, name):
    """For programs, which would otherwise have to parse the detail.

    Source: reference cursors#problem-fields, low-level-streams#cursor-errors.
    """
    create(name)
    publish_orders(client, name, "0", "1")
    headers = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"7"}]'}
    answer = problem(client.get(f"/event-types/{name}/events", headers=headers), 412)
    assert {key: answer[key] for key in answer if key not in ("title", "status", "detail")} == {
        "event_type": name,
        "partition": "0",
        "oldest_available_offset": "001-0001-000000000000000000",
        "newest_available_offset": "001-0001-000000000000000001",
    }


def test_an_unknown_event_type_is_not_found(client):
    problem(client.get("/event-types/nope/events"), 404, "topic not found")


def test_all_partitions_are_streamed(client, create, name):
    create(name, partition_strategy="hash", partition_key_fields=["order_id"], **partitions(3))
    publish_orders(client, name, *map(str, range(30)))
    cursors = json.dumps([{"partition": str(number), "offset": "BEGIN"} for number in range(3)])
    path = f"/event-types/{name}/events?batch_limit=4&stream_limit=30&batch_flush_timeout=1"
    with open_stream(client, path, headers={"X-Nakadi-Cursors": cursors}) as stream:
        assert sorted(int(each["order_id"]) for each in stream.events(30)) == list(range(30))


def test_a_stream_is_compressed_batch_by_batch_on_request(client, create, name):
    """Reference low-level-streams#compression."""
    create(name)
    publish_orders(client, name, "1")
    path = f"/event-types/{name}/events?batch_flush_timeout=1"
    with client.stream("GET", path, headers=BEGIN | {"Accept-Encoding": "gzip"}) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert '"order_id":"1"' in Stream(response).line()


def test_a_blocked_consumer_is_rejected(client, create, name):
    create(name)
    client.put(f"/settings/blacklist/CONSUMER_ET/{name}")
    problem(client.get(f"/event-types/{name}/events"), 403, "Application or event type is blocked")


def test_events_beyond_a_limit_in_a_second_are_left_out_and_counted(client, create, name):
    """Reference low-level-streams#left-out-events."""
    create(name)
    publish_orders(client, name, *map(str, range(300)))
    path = f"/event-types/{name}/events?events_per_second_limit=10&batch_flush_timeout=1&stream_limit=10"
    batches = [json.loads(line) for line in client.get(path, headers=BEGIN).text.splitlines()]
    seen = [int(each["order_id"]) for batch in batches for each in batch.get("events", [])]
    left_out = sum(batch["info"]["left_out"] for batch in batches if "info" in batch)
    # If the last events were not seen at first, some of the first events are shown as well.
    assert seen == sorted(seen)
    assert left_out > 0
    assert len(seen) + left_out == seen[-1] + 1


# --- changes during a stream (4.7) ---


def switch_timeline(client, name):
    assert client.post(f"/event-types/{name}/timelines", json={"storage_id": "default"}).status_code == 201


def add_partitions(client, name):
    assert client.put(f"/event-types/{name}/partition-count", json={"partition_count": 4}).status_code == 204


@pytest.mark.parametrize(
    ("change", "offset"),
    rows(
        ("timeline switch", switch_timeline, "001-0002-000000000000000000"),
        ("repartition", add_partitions, "001-0001-000000000000000001"),
    ),
)
def test_a_stream_continues_through_switches_and_new_partitions(client, create, name, change, offset):
    """Reference low-level-streams#timeline-switches, low-level-streams#partition-changes."""
    create(name, partition_strategy="user_defined")
    with open_stream(client, f"/event-types/{name}/events?batch_flush_timeout=1", headers=BEGIN) as stream:
        for number in range(2):
            body = [event(str(number), metadata={"partition": "0"})]
            assert client.post(f"/event-types/{name}/events", json=body).status_code == 200
            while "events" not in (batch := stream.batch()):
                assert batch["cursor"]["partition"] == "0"
            assert batch["events"][0]["order_id"] == str(number)
            if not number:
                change(client, name)
        assert batch["cursor"] == {"partition": "0", "offset": offset}


def test_the_deletion_of_the_event_type_ends_a_stream_with_the_reason(client, create, name):
    """Reference low-level-streams#right-checks, low-level-streams#end-reasons."""
    create(name)
    with open_stream(client, f"/event-types/{name}/events?batch_flush_timeout=30", headers=BEGIN) as stream:
        assert client.delete(f"/event-types/{name}").status_code == 200
        (last,) = stream.batches()
    assert last == {"cursor": {"partition": "0", "offset": "001-0001--1"}, "info": {"debug": "Event type deleted"}}
