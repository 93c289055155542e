"""The load generator, against a minimal server with the stream format of the API."""

import json
import socket
import uuid

import pytest

from rioni.cli.broker import bench
from rioni.cli.broker.bench import Bodies
from rioni.cli.broker.bench_runs import Consume, Publish, Report
from rioni.cli.broker.load_client import LoadTarget
from rioni.client import Client
from rioni.domain.errors import Invalid, Malformed, Unavailable
from tests.support.api_server import ApiServer, api_server


@pytest.fixture
def api():
    with api_server() as running:
        yield running


def publish(api: ApiServer, **changes: object) -> Report:
    plan = {"event_type": "e.t", "category": "business", "connections": 3, "batch": 5, "size": 300, "seconds": 30}
    with Client(api.url, attempts=1) as client:
        return bench.publish(LoadTarget(api.url), Publish(**(plan | {"requests": 20} | changes)), client)


def consume(api: ApiServer, **changes: object) -> Report:
    plan = {"event_type": "e.t", "connections": 1, "batch": 10, "window": 100, "read_from": "begin", "seconds": 30}
    with Client(api.url, attempts=1) as client:
        return bench.consume(LoadTarget(api.url), Consume(**(plan | changes)), client)


@pytest.mark.parametrize("category", ["business", "data", "undefined"])
def test_publishing_sends_exactly_the_events_asked_for_all_different_and_of_the_right_size(api, category):
    report = publish(api, category=category)
    events = [event for body in api.bodies for event in json.loads(body)]
    eids = {uuid.UUID(event["id"] if category == "undefined" else event["metadata"]["eid"]) for event in events}
    assert report.events == len(events) == len(eids) == 100
    assert report.statuses == {200: 20}
    assert report.bytes == sum(map(len, api.bodies)) == 20 * (5 * 300 + 6)
    assert api.event_types["e.t"]["category"] == category


def test_each_request_has_a_key_of_its_own_if_wanted(api):
    publish(api)
    assert set(api.keys) == {None}
    publish(api, idempotency_keys=True)
    assert len({key for key in api.keys if key}) == 20


def test_an_event_is_never_smaller_than_its_minimum():
    bodies = Bodies("data", 1, 0)
    (event,) = json.loads(bodies.next())
    assert event["data"] == {"number": 1, "text": ""}


def test_an_existing_event_type_is_used_unchanged(api):
    existing = {"name": "e.t", "owning_application": "shop", "category": "business", "schema": {"schema": "{}"}}
    api.event_types["e.t"] = existing
    publish(api)
    assert api.event_types == {"e.t": existing}
    with pytest.raises(Invalid, match=r"e\.t has the category business"):
        publish(api, category="data")


def test_publishing_ends_when_the_time_is_over(api):
    report = publish(api, requests=None, seconds=0.1)
    assert report.events > 0
    assert report.seconds < 10


def test_rejected_events_are_counted_as_errors_and_not_as_events(api):
    api.publish_status = 422
    report = publish(api)
    assert report.events == 0
    assert report.failed
    assert report.statuses == {422: 20}
    assert report.problem == '{"detail": "refused"}'


def test_a_server_that_disconnects_ends_the_measurement_with_the_answers_so_far(api):
    api.closes_after = 10
    report = publish(api)
    assert report.statuses == {200: 9, 0: 3}
    assert report.events == 9 * 5
    assert report.problem == "the connection broke"


def _frame(partition: str, position: int, count: int) -> bytes:
    offset = f"001-0001-{position:018d}" if position >= 0 else "001-0001--1"
    batch = {"cursor": {"partition": partition, "offset": offset, "event_type": "e.t", "cursor_token": "t"}}
    if count:
        batch["events"] = [{"metadata": {"eid": str(number)}} for number in range(count)]
    return json.dumps(batch, separators=(",", ":")).encode() + b"\n"


def test_consuming_counts_the_events_of_every_partition_and_commits_their_last_cursors(api):
    frames = [_frame("0", -1, 0), _frame("0", 9, 10), _frame("1", 4, 5), _frame("0", 19, 10), _frame("1", 4, 0)]
    joined = b"".join(frames)
    # Boundaries of stream lines and of chunks are independent.
    api.frames = [joined[start : start + 100] for start in range(0, len(joined), 100)]
    report = consume(api, events=25)
    assert report.events == 25
    assert not report.failed
    last = {item["partition"]: item["offset"] for commit in api.commits for item in commit["items"]}
    assert last == {"0": "001-0001-000000000000000019", "1": "001-0001-000000000000000004"}
    assert api.deleted == ["/subscriptions/s-1"]


def test_a_repeated_batch_counts_once(api):
    api.frames = [_frame("0", 9, 10), _frame("0", 19, 10), _frame("0", 9, 10), _frame("0", 29, 10)]
    assert consume(api, events=30).events == 30


def test_a_rejected_stream_is_reported(api):
    api.stream_status = 409
    report = consume(api)
    assert report.statuses == {409: 1}
    assert report.problem == '{"detail": "No free slots"}'
    assert report.failed


def test_an_invalid_stream_is_an_error_and_the_subscription_is_still_removed(api):
    api.frames = [b"<html>\n"]
    with pytest.raises(Malformed, match="not a batch: b'<html>'"):
        consume(api)
    assert api.deleted == ["/subscriptions/s-1"]


def test_an_unreachable_server_is_named_with_instructions():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        api = ApiServer()
        api.url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for run in (lambda: publish(api), lambda: consume(api)):
        with pytest.raises(Unavailable, match=r"does not answer: Connection refused\. Is the broker running there\?"):
            run()
