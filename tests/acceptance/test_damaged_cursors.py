"""A stored offset that is damaged is named to those whom it concerns, and concerns nobody else."""

import contextlib
import json
import sqlite3

from tests.support.builders import event_type_body
from tests.support.server import PROMETHEUS, Stream, running_server
from tests.support.waiting import wait_until


DAMAGE = "The stored offset 'xx' is damaged"


def test_a_damaged_offset_fails_what_needs_it_and_says_so(tmp_path):
    data = tmp_path / "data"
    with running_server(data) as server, server.client() as client:
        damaged, other = (_consumed(client, name) for name in ("a", "b"))
    with contextlib.closing(sqlite3.connect(data / "coordination.db")) as coordination, coordination:
        coordination.execute("UPDATE partitions SET offset = 'xx' WHERE event_type = 'a'")
    with running_server(data) as server, server.client() as client:
        stats = client.get(f"/subscriptions/{damaged}/stats")
        assert stats.status_code == 503
        assert DAMAGE in stats.json()["detail"]
        with client.stream("GET", f"/subscriptions/{damaged}/events") as stream:
            (line,) = [each for each in stream.iter_lines() if each]
        assert DAMAGE in json.loads(line)["info"]["debug"]
        ((unconsumed,),) = [
            [each["unconsumed_events"] for each in item["partitions"]]
            for item in client.get(f"/subscriptions/{other}/stats").json()["items"]
        ]
        assert unconsumed == 1
        series = f'owning_application="app",subscription="{other}"}} 1.0'
        wait_until(lambda: series in client.get("/metrics", headers=PROMETHEUS).text)
    assert [line for line in server.lines if DAMAGE in line]
    assert not [line for line in server.lines if "Traceback" in line or "job failed" in line]


def _consumed(client, event_type):
    """A subscription to a new event type that has committed all but one of its events."""
    any_event = {"type": "json_schema", "schema": "{}"}
    body = event_type_body(name=event_type, category="undefined", enrichment_strategies=[], schema=any_event)
    assert client.post("/event-types", json=body).status_code == 201
    wanted = {"owning_application": "app", "event_types": [event_type], "read_from": "begin"}
    subscription = client.post("/subscriptions", json=wanted).json()["id"]
    client.post(f"/event-types/{event_type}/events", json=[{}, {}]).raise_for_status()
    with client.stream("GET", f"/subscriptions/{subscription}/events") as stream:
        cursor = Stream(stream).batch()["cursor"]
        headers = {"X-Nakadi-StreamId": stream.headers["X-Nakadi-StreamId"]}
        client.post(f"/subscriptions/{subscription}/cursors", json={"items": [cursor]}, headers=headers)
    return subscription
