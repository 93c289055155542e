"""`GET /subscriptions/{id}/ended-streams`: why streams ended.

Source: reference streams#ended-streams.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from rioni.domain.streaming.messages import Reason
from tests.acceptance.conftest import problem, publish_orders
from tests.support.builders import event_type_body
from tests.support.server import open_stream, running_server
from tests.support.waiting import wait_until


REFERENCE = Path(__file__).parents[2] / "docs/reference/streams.md"
WAITING = "batch_flush_timeout=30&commit_timeout=1"


def ended(client, subscription_id):
    """How many streams ended for each reason."""
    response = client.get(f"/subscriptions/{subscription_id}/ended-streams")
    assert response.status_code == 200, response.text
    items = response.json()["items"]
    assert {each["client"] for each in items} <= {"unauthenticated"}
    assert all(each["first_at"] <= each["last_at"] for each in items)
    assert items == sorted(items, key=lambda each: each["last_at"], reverse=True)
    return {each["reason"]: each["count"] for each in items}


@pytest.mark.both_modes
def test_ends_are_counted_by_reason(client, server, create, subscribe, name):
    """Reference streams#ended-streams, streams#end-reasons."""
    create(name)
    path = f"/subscriptions/{(id_ := subscribe(name, read_from='begin'))}"
    expected = Counter()

    def unread():
        (item,) = client.get(f"{path}/stats").json()["items"]
        return not any(each["stream_id"] for each in item["partitions"])

    def stream(reason, act=lambda _: None, parameters=WAITING):
        with server.client() as other, open_stream(other, f"{path}/events?{parameters}") as opened:
            act(opened)
            if reason != "client_gone":
                opened.batches()
        expected[reason] += 1
        wait_until(unread)

    def close(opened):
        assert client.delete(f"{path}/streams/{opened.stream_id}").status_code == 204

    def commit(opened):
        body = {"items": [opened.filled_batch()["cursor"]]}
        headers = {"X-Nakadi-StreamId": opened.stream_id}
        assert client.post(f"{path}/cursors", json=body, headers=headers).status_code == 204

    def reset(_opened):
        body = {"items": [{"event_type": name, "partition": "0", "offset": "BEGIN"}]}
        assert client.patch(f"{path}/cursors", json=body).status_code == 204

    assert ended(client, id_) == {}
    stream("session_ended", close)
    stream("client_gone")
    stream("session_ended", close)
    stream("keep_alive_limit", parameters="batch_flush_timeout=1&stream_keep_alive_limit=1")
    publish_orders(client, name, "1")
    stream("stream_limit", commit, parameters=f"{WAITING}&stream_limit=1")
    stream("reset", reset)
    stream("commit_timeout")
    stream("blocked", lambda _: client.put(f"/settings/blacklist/CONSUMER_ET/{name}"))
    # Ends on other workers are known a second later.
    wait_until(lambda: ended(client, id_) == expected)


def test_a_subscription_that_does_not_exist_has_no_ended_streams(client, create, subscribe, name):
    create(name)
    path = f"/subscriptions/{(id_ := subscribe(name))}"
    assert client.get(f"{path}/ended-streams").json() == {"items": []}
    client.delete(path)
    problem(client.get(f"{path}/ended-streams"), 404, f'Subscription with id "{id_}" does not exist')


def test_a_worker_that_stops_records_the_ends_of_its_streams(tmp_path, name):
    """Reference streams#ended-streams."""
    body = {"owning_application": "shop", "event_types": [name]}
    data = tmp_path / "rioni"
    with running_server(data, "--workers", "1") as running, running.client() as client:
        client.post("/event-types", json=event_type_body(name=name))
        id_ = client.post("/subscriptions", json=body).json()["id"]
        with open_stream(client, f"/subscriptions/{id_}/events") as stream:
            running.stop()
            assert stream.batches()[-1]["info"]["debug"].endswith("Server is shutting down")
    with running_server(data, "--workers", "1") as running, running.client() as client:
        assert ended(client, id_) == {"shutdown": 1}


def test_every_reason_is_documented_with_what_to_do():
    section = REFERENCE.read_text().split("### End reasons")[1].split("###")[0]
    rows = [re.split(r" *\| *", row.strip("| ")) for row in section.splitlines() if row.startswith("| `")]
    assert [row[0] for row in rows] == [f"`{reason.label}`" for reason in Reason]
    assert all(len(row) == 5 and all(row) for row in rows)
