"""The order of the steps of publishing, and the answer of the first one that fails.

Source: reference publishing#steps, publishing#batch-format, publishing#publish-request.
"""

import json

import pytest

from tests.acceptance.conftest import event, partitions, problem


TAG = {"X-CONSUMER-TAG": "consumer_subscription_id=x"}
KEY = {"Idempotency-Key": "x" * 256}
PATHS = ("events", "deleted-events")


@pytest.mark.parametrize("path", PATHS)
def test_the_first_step_that_fails_determines_the_answer(client, create, name, path):
    """Each request is wrong in all the ways of those below it."""
    create(name)
    blocked, unknown = f"/event-types/{name}/{path}", f"/event-types/{name}.nope/{path}"
    client.put(f"/settings/blacklist/PRODUCER_ET/{name}")
    for url, headers, body, status, detail in (
        (blocked, TAG, b"{", 422, "header tag value: x is not an UUID"),
        (blocked, KEY, b"{", 400, "Idempotency-Key"),
        (blocked, {}, b"{", 403, "Application or event type is blocked"),
        (
            unknown,
            {},
            b"{",
            400,
            "Error occurred when parsing event(s). Array of events should start with [ at position 0",
        ),
        (unknown, {}, b"[]", 404, f'EventType "{name}.nope" does not exist.'),
    ):
        problem(client.post(url, content=body, headers=headers), status, detail)
    client.delete(f"/settings/blacklist/PRODUCER_ET/{name}")


@pytest.mark.parametrize(
    ("header", "detail"),
    [
        ("", "X-CONSUMER-TAG: is empty!"),
        ("consumer_subscription_id", "header tag parameter"),
        ("nobody=x", "invalid header tag: nobody"),
        ("consumer_subscription_id=x", "header tag value: x is not an UUID"),
        (
            ", ".join(["consumer_subscription_id=0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"] * 2),
            "duplicate header tag: CONSUMER_SUBSCRIPTION_ID",
        ),
    ],
)
def test_a_wrong_tag_is_named(client, create, name, header, detail):
    create(name)
    response = client.post(f"/event-types/{name}/events", json=[event()], headers={"X-CONSUMER-TAG": header})
    problem(response, 422, detail)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "Array of events should start with ["),
        (b"{}", "Array of events should start with ["),
        (b"[{}", "Array of events should end with ]"),
        (b"[1]", "Illegal character at position 1"),
        (b'[{"a":1', "Unclosed object staring at 1 found."),
        (b'[{"a":1,"a":2}]', 'Duplicate key "a"'),
        (b'[{"a":9223372036854775808}]', "Can not use long value"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_unparsable_bodies_are_explained(client, create, name, path, body, detail):
    """Reference publishing#batch-format, publishing#strict-json."""
    create(name)
    response = client.post(f"/event-types/{name}/{path}", content=body)
    problem(response, 400, f"Error occurred when parsing event(s). {detail}")


@pytest.mark.parametrize("body", [b" [ ] ", b"[,,]", b"\r\n[\t]\n"])
def test_a_batch_without_events_is_accepted(client, create, name, body):
    create(name)
    response = client.post(f"/event-types/{name}/events", content=body)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("separator", ["", ",,", " ", ",\r\n,"])
def test_separators_may_be_missing_or_repeated(client, create, name, separator):
    create(name)
    body = f"[{json.dumps(event('1'))}{separator}{json.dumps(event('2'))}]"
    assert client.post(f"/event-types/{name}/events", content=body).status_code == 200
    assert client.get(f"/event-types/{name}/partitions/0").json()["newest_available_offset"].endswith("01")


def without_metadata_partition(index):
    return event(str(index), metadata={"partition": "0"} if index != 1 else {})


def with_wrong_order_id(index):
    return event(str(index) if index != 1 else 1, metadata={"partition": "0"})


@pytest.mark.parametrize(
    ("make", "detail", "steps", "known"),
    [
        (
            with_wrong_order_id,
            "#/order_id: expected type: String, found: Integer",
            ["validating", "validating", "none"],
            [None, None, None],
        ),
        (
            without_metadata_partition,
            "Failed to resolve partition. Failed to get partition from event metadata",
            ["partitioning", "partitioning", "validating"],
            ["0", None, None],
        ),
    ],
)
def test_results_contain_the_last_step_of_each_event(client, create, name, make, detail, steps, known):
    """Reference publishing#refused-batches, publishing#result-items."""
    create(name, partition_strategy="user_defined", **partitions(2))
    events = [make(index) for index in range(3)]
    response = client.post(f"/event-types/{name}/events", json=events)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/json"
    assert response.json() == [
        {
            "publishing_status": "failed" if index == 1 else "aborted",
            "detail": detail if index == 1 else "",
            "step": steps[index],
            "eid": events[index]["metadata"]["eid"],
            "partition": known[index],
        }
        for index in range(3)
    ]
