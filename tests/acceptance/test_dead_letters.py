"""Events that consumers fail to process: reference streams#dead-letter-handling.

Source: reference streams#dead-letters, system-event-types#dead-letter-queue.
"""

import json
import subprocess
import sys
import uuid

import pytest

from tests.acceptance.conftest import event, partitions, problem
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes


SEND_COUNT = "nakadi.zalando.org/subscription-max-event-send-count"
POLICY = "nakadi.zalando.org/subscription-unprocessable-event-policy"
QUEUE = "nakadi.dead.letter.queue"
POISON = "poison"
STREAM = "/events?batch_limit=10&batch_flush_timeout=1&commit_timeout=1&max_uncommitted_events=100"


def annotations(policy):
    return {SEND_COUNT: "2", POLICY: policy}


def consume(server, path, last):
    """Commit all batches except those with poison events, in stream after stream, up to an event; return all events."""
    seen, infos, committed = [], [], []
    with server.client() as client:
        while last not in committed:
            with open_stream(client, path + STREAM) as stream:
                for batch in stream.batches_as_they_come():
                    infos.append(batch.get("info", {}).get("debug", ""))
                    ids = [each["order_id"] for each in batch.get("events", [])]
                    seen += ids
                    if ids and POISON not in ids:
                        commit(server, path, stream, batch)
                        committed += ids
                    if last in committed:
                        break
    return seen, infos


def commit(server, path, stream, batch):
    headers = {"X-Nakadi-StreamId": stream.stream_id}
    with server.client() as client:
        answer = client.post(path + "/cursors", json={"items": [batch["cursor"]]}, headers=headers)
    assert answer.status_code == 204, answer.text


@pytest.fixture
def poisoned(client, create, name):
    """An event type with one event that no consumer can process, among others."""
    create(name)
    bodies = [event(order_id) for order_id in ("1", POISON, "2", "3")]
    assert client.post(f"/event-types/{name}/events", json=bodies).status_code == 200
    return name


def test_without_annotations_poison_events_are_sent_repeatedly(client, server, subscribe, poisoned):
    path = f"/subscriptions/{subscribe(poisoned, read_from='begin')}"
    for _ in range(3):
        with server.client() as other, open_stream(other, path + STREAM) as stream:
            assert stream.batches()[-1]["info"] == {"debug": "Commit timeout reached"}
    assert client.get(path + "/dead-letters").json() == {"items": []}


def test_poison_events_can_be_skipped(client, server, subscribe, poisoned):
    """Reference streams#failures, streams#search."""
    path = f"/subscriptions/{subscribe(poisoned, read_from='begin', annotations=annotations('SKIP_EVENT'))}"
    seen, infos = consume(server, path, "3")
    assert seen[-2:] == ["2", "3"]
    assert seen.count(POISON) == 4
    assert seen.count("2") == seen.count("3") == 3
    tracked = f"Auto DLQ failed commits tracking: {{{poisoned}:0 failedCommitsCount=1 lastDeadLetterOffset=null}}"
    assert f"Stream started; {tracked}" in infos
    assert client.get(path + "/dead-letters").json() == {"items": []}


def test_poison_events_can_be_stored_and_redriven_for_this_subscription_alone(client, server, subscribe, poisoned):
    """Reference streams#listing-dead-letters, streams#redrive, system-event-types#dead-letter-event."""
    subscription = subscribe(poisoned, read_from="begin", annotations=annotations("DEAD_LETTER_QUEUE"))
    path = f"/subscriptions/{subscription}"
    with server.client() as other, open_stream(other, path + STREAM) as stream:
        # This failure of another event is not the reason of the event that becomes a dead letter.
        explain(client, path, stream, failures("of event 3", name=poisoned, **stream.filled_batch()["cursor"]))
    seen, _ = consume(server, path, "3")
    assert seen[-2:] == ["2", "3"]
    stored = raw_events(client, poisoned, 4)[1]
    (letter,) = client.get(path + "/dead-letters").json()["items"]
    assert letter.pop("kept_at")
    assert letter == {
        "event_type": poisoned,
        "partition": "0",
        "offset": "001-0001-000000000000000001",
        "error": {"message": "The event was sent 2 times without being committed"},
        "event": json.loads(stored),
    }
    for wanted, count in (
        ({"event_type": poisoned, "partition": "0", "from_offset": "1", "to_offset": "1"}, 1),
        ({"from_offset": "2"}, 0),
        ({"to_offset": "0"}, 0),
        ({"from_offset": "BEGIN"}, 1),
        ({"reason": letter["error"]["message"]}, 1),
        ({"reason": "another"}, 0),
    ):
        assert len(client.get(path + "/dead-letters", params=wanted).json()["items"]) == count, wanted
    (still_open,) = client.get(path + "/dead-letters", params={"only_open": "true"}).json()["items"]
    assert still_open.pop("kept_at")
    assert still_open == letter
    for body, redriven, already in (
        ({"reason": "another"}, 0, 0),
        ({}, 1, 0),
        ({"partition": "0"}, 0, 1),
    ):
        previewed = client.post(path + "/dead-letters/redrive/preview", json=body).json()
        reasons = [{"reason": letter["error"]["message"], "count": 1}] if redriven else []
        response = client.post(path + "/dead-letters/redrive", json=body)
        assert response.status_code == 200, response.text
        assert response.json() == {"redriven": redriven, "already_redriven": already, "without_event_type": 0}
        assert previewed == response.json() | {"more": False, "reasons": reasons}
    (marked,) = client.get(path + "/dead-letters", params={"show_redriven": "true"}).json()["items"]
    assert marked["redriven"] is True
    assert client.get(path + "/dead-letters", params={"only_open": "true"}).json() == {"items": []}
    assert run("list", subscription, "--url", server.url, "--json") == ""
    shown = run("list", subscription, "--event-type", poisoned, "--show-redriven", "--url", server.url, "--json")
    # It is the same time with more digits.
    assert {**json.loads(shown), "kept_at": marked["kept_at"]} == marked
    counts = "1 redriven, 0 already redriven, 0 without an event type\n"
    dry = run("redrive", subscription, "--force", "--dry-run", "--url", server.url)
    assert dry == f"A redrive now: {counts}  1: {letter['error']['message']}\n"
    dry = run("redrive", subscription, "--force", "--dry-run", "--limit", "1", "--all", "--url", server.url)
    assert dry.count("A redrive now") == 2
    none = counts.replace("1", "0", 1)
    assert run("redrive", subscription, "--force", "--limit", "1", "--all", "--url", server.url) == counts + none
    with server.client() as other, open_stream(other, path + STREAM) as stream:
        for _ in range(2):
            batch = stream.filled_batch()
            assert batch["events"] == [json.loads(stored)]
            commit(server, path, stream, batch)
    client.post(f"/event-types/{poisoned}/events", json=[event("4")])
    assert [json.loads(each)["order_id"] for each in raw_events(client, poisoned, 5)] == ["1", POISON, "2", "3", "4"]


def run(*arguments):
    """The output of a command about dead letters."""
    command = [sys.executable, "-m", "rioni", "dead-letters", *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def raw_events(client, name, count):
    """The events of an event type, byte by byte."""
    cursors = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
    path = f"/event-types/{name}/events?batch_limit=1&stream_limit={count}"
    with client.stream("GET", path, headers=cursors) as response:
        lines = list(response.iter_lines())
    return [line.partition('"events":[')[2].rpartition("]")[0] for line in lines]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({SEND_COUNT: "3"}, f"The annotation {SEND_COUNT} needs {POLICY} beside it; give both of them or none"),
        ({POLICY: "SKIP_EVENT"}, f"The annotation {POLICY} needs {SEND_COUNT} beside it; give both of them or none"),
        (annotations("DROP"), f"The annotation {POLICY} must be SKIP_EVENT or DEAD_LETTER_QUEUE"),
        (
            annotations("SKIP_EVENT") | {SEND_COUNT: "11"},
            f"The annotation {SEND_COUNT} must be an integer from 2 to 10",
        ),
    ],
)
def test_annotations_are_checked_on_creation_and_on_update(client, create, subscribe, name, changes, detail):
    """Reference subscriptions#dead-letter-policy."""
    create(name)
    body = {"owning_application": f"app-{uuid.uuid4().hex[:8]}", "event_types": [name]}
    assert problem_detail(client.post("/subscriptions", json=body | {"annotations": changes})) == detail
    path = client.post("/subscriptions", json=body).headers["Location"]
    assert problem_detail(client.put(path, json=body | {"annotations": changes})) == detail
    assert client.put(path, json=body | {"annotations": annotations("SKIP_EVENT")}).status_code == 204


def problem_detail(response):
    problem(response, 422)
    return response.json()["detail"]


def test_bad_requests_are_answered_with_the_reason(client, create, subscribe, name):
    """Reference streams#listing-dead-letters."""
    create(name, **partitions(1))
    path = f"/subscriptions/{subscribe(name)}/dead-letters"
    problem(client.get(path, params={"limit": "0"}), 400)
    problem(client.get(path, params={"limit": "x"}), 400)
    problem(client.get(path, params={"from_offset": "x"}), 422)
    for nothing in ({"event_type": "other"}, {"partition": "1"}):
        problem(client.get(path, params=nothing), 422)
        problem(client.post(path + "/redrive", json=nothing), 422)
        problem(client.post(path + "/redrive/preview", json=nothing), 422)
    problem(client.post(path + "/redrive", json={"limit": 0}), 400)
    problem(client.post(path + "/redrive", json={"force": "yes"}), 400)
    problem(client.post(path + "/redrive", json={"to_offset": "x"}), 422)
    problem(client.post(path + "/redrive", json={"after": "x"}), 400)
    assert "after.offset" in problem_detail(client.post(path + "/redrive", json={"after": {"partition": "0"}}))
    problem(client.post(path + "/redrive/preview", json={"limit": 1_001}), 400)
    problem(client.get(path, params={"show_redriven": "maybe"}), 400)
    problem(client.get(path, params={"only_open": "maybe"}), 400)
    for unknown in (uuid.uuid4(), "x"):
        problem(client.get(f"/subscriptions/{unknown}/dead-letters"), 404)
        problem(client.post(f"/subscriptions/{unknown}/dead-letters/redrive", json={}), 404)
        problem(client.post(f"/subscriptions/{unknown}/dead-letters/redrive/preview", json={}), 404)


def failures(*reasons, offset="001-0001-000000000000000000", name="", **members):
    return {
        "items": [
            {"event_type": name, "partition": "0", "offset": offset, "reason": reason, **members} for reason in reasons
        ]
    }


def explain(client, path, stream, body):
    answer = client.post(f"{path}/streams/{stream.stream_id}/failures", json=body)
    assert (answer.status_code, answer.content) == (204, b"")


def test_only_an_open_stream_with_the_partition_can_give_reasons(client, server, subscribe, poisoned):
    """Reference streams#failure-reasons."""
    path = f"/subscriptions/{subscribe(poisoned, read_from='begin')}"
    body = failures("x" * 1_000, "\U0001f642" * 1_000, name=poisoned)
    with server.client() as other, open_stream(other, path + STREAM) as stream:
        assert stream.filled_batch()
        given = f"{path}/streams/{stream.stream_id}/failures"
        explain(client, path, stream, body)
        explain(client, path, stream, failures(*["x"] * 100, name=poisoned))
        for wrong, status in (
            (failures("x" * 1_001, name=poisoned), 400),
            (failures(*["x"] * 101, name=poisoned), 400),
            (failures(1, name=poisoned), 400),
            ({"items": []}, 400),
            ([], 400),
            ({}, 422),
            (failures("", name=poisoned), 422),
            (failures(None, name=poisoned), 422),
            (failures("x"), 422),
            (failures("x", name="test.unknown"), 422),
            (failures("x", name=poisoned, partition="1"), 422),
            (failures("x", name=poisoned, offset="x"), 422),
            (failures("x", name=poisoned, offset="001-0007-000000000000000000"), 422),
        ):
            problem(client.post(given, json=wrong), status)
        problem(client.post(given, content=json.dumps(failures("\ud83d", name=poisoned))), 400)
        problem(client.post(f"{path}/streams/x/failures", json=body), 422)
        problem(client.post(f"{path}/streams/{uuid.uuid4()}/failures", json=body), 422, "Session with stream id")
        unknown = f"/subscriptions/{uuid.uuid4()}/streams/{stream.stream_id}/failures"
        problem(client.post(unknown, json=body), 404)
        client.delete(f"{path}/streams/{stream.stream_id}").raise_for_status()
        problem(client.post(given, json=body), 422, "Session with stream id")
