"""Binary publishing and consuming: reference publishing#binary-batches, streams#parameters."""

import gzip
import io
import json

import fastavro
import pytest

from rioni.domain.avro.binary import BATCH_SCHEMAS, CONSUMPTION, MEDIA_TYPE
from tests.acceptance.conftest import event, problem
from tests.support.avro import EID, ORDER, batch, datum, envelope


AVRO = {"type": "avro_schema", "schema": json.dumps(ORDER)}
SCHEMA = fastavro.parse_schema(dict(BATCH_SCHEMAS[CONSUMPTION]["1"].document))
HEADER = bytes.fromhex("c301 451a7f6089e7f57e")
"""The media type by which clients of Nakadi recognise a consumption batch."""
LENGTH = f"{MEDIA_TYPE}; framing=length"
CURSOR = json.dumps([{"partition": "0", "offset": "BEGIN"}])


def publish(client, name, *envelopes, version="1", **headers):
    named = [{**each, "metadata": {"event_type": name} | each["metadata"]} for each in envelopes]
    headers = {"Content-Type": MEDIA_TYPE} | headers
    return client.post(f"/event-types/{name}/events", content=batch(*named, version=version), headers=headers)


def order(number, **metadata):
    each = envelope(datum({"order_id": str(number), "amount": number}), **metadata)
    each["metadata"].pop("event_type") if "event_type" not in metadata else None
    return each


def messages(data):
    """The batches of a binary stream, decoded as Nakadi's clients do: a message ends where its datum ends."""
    stream = io.BytesIO(data)
    while header := stream.read(len(HEADER)):
        assert header == HEADER
        yield fastavro.schemaless_reader(stream, SCHEMA, None)


def framed_messages(data):
    """The batches of a binary stream with a length prefix each."""
    while data:
        length, data = int.from_bytes(data[:4], "big"), data[4:]
        (found,) = messages(data[:length])
        yield found
        data = data[length:]


def read_low_level(client, name, count, accept=MEDIA_TYPE):
    path = f"/event-types/{name}/events?batch_limit={min(2, count)}&stream_limit={count}&batch_flush_timeout=1"
    response = client.get(path, headers={"X-Nakadi-Cursors": CURSOR, "Accept": accept})
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize("version", ["0", "1"])
def test_events_published_in_avro_are_read_as_json(client, create, name, version):
    create(name, schema=AVRO)
    response = publish(client, name, order(1), order(2), version=version)
    assert (response.status_code, response.content) == (200, b"")
    (line,) = read_low_level(client, name, 2, accept="*/*").text.splitlines()
    events = json.loads(line)["events"]
    assert [(each["order_id"], each["amount"], each["metadata"]["eid"]) for each in events] == [
        ("1", 1, EID),
        ("2", 2, EID),
    ]


def test_the_content_type_may_have_parameters_and_the_body_may_be_compressed(client, create, name):
    create(name, schema=AVRO)
    assert publish(client, name, order(1), **{"Content-Type": "Application/AVRO-binary; charset=x"}).status_code == 200
    headers = {"Content-Type": MEDIA_TYPE, "Content-Encoding": "gzip"}
    body = gzip.compress(batch(order(1, event_type=name)))
    assert client.post(f"/event-types/{name}/events", content=body, headers=headers).status_code == 200


def test_a_rejected_batch_reports_the_result_of_each_event(client, create, name):
    create(name, schema=AVRO)
    response = publish(client, name, order(1), order(2, version="9.0.0"))
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/json"
    assert response.json() == [
        {"publishing_status": "aborted", "detail": "", "step": "validating", "eid": EID, "partition": None},
        {
            "publishing_status": "failed",
            "detail": f'EventType "{name}" has no schema with version "9.0.0"',
            "step": "validating",
            "eid": EID,
            "partition": None,
        },
    ]


def test_an_invalid_batch_is_a_problem_with_a_reason(client, create, name):
    """Reference publishing#binary-steps."""
    create(name, schema=AVRO)
    path, headers = f"/event-types/{name}/events", {"Content-Type": MEDIA_TYPE}
    problem(client.post(path, content=b"[]", headers=headers), 400, "has to begin with the bytes C3 01")
    problem(client.post(path, content=batch(order(1, event_type=name))[:-1], headers=headers), 400, "ends too early")
    problem(client.post(f"/event-types/{name}.no/events", content=b"[]", headers=headers), 404)


def test_an_empty_batch_is_accepted(client, create, name):
    create(name, schema=AVRO)
    assert publish(client, name).status_code == 200


def test_large_batches_do_not_stop_the_worker(client, create, name):
    create(name, schema=AVRO)
    assert publish(client, name, *[order(number) for number in range(2_000)]).status_code == 200
    assert len(list(messages(read_low_level(client, name, 2_000).content))) == 1_000


def test_a_low_level_stream_may_be_binary(client, create, name):
    """Reference low-level-streams#avro-batches."""
    create(name, schema=AVRO)
    publish(client, name, order(1), order(2), order(3, flow_id="mine"))
    response = read_low_level(client, name, 3)
    assert response.headers["content-type"] == "application/x-json-stream"
    first, second = messages(response.content)
    assert first["cursor"] == {
        "partition": "0",
        "offset": "001-0001-000000000000000001",
        "event_type": name,
        "cursor_token": "",
    }
    assert [len(each["events"]) for each in (first, second)] == [2, 1]
    data = [each["payload"] for found in (first, second) for each in found["events"]]
    assert data == [datum({"order_id": str(number), "amount": number}) for number in (1, 2, 3)]
    metadata = second["events"][0]["metadata"]
    assert (str(metadata["eid"]), metadata["version"], metadata["event_type"]) == (EID, "1.0.0", name)
    assert (metadata["flow_id"], metadata["partition"]) == ("mine", "0")


def test_messages_may_have_a_length_prefix(client, create, name):
    """Reference low-level-streams#avro-batches, streams#avro-batches."""
    create(name, schema=AVRO)
    publish(client, name, order(1), order(2), order(3))
    framed = read_low_level(client, name, 3, accept=LENGTH)
    assert framed.headers["content-type"] == LENGTH
    assert list(framed_messages(framed.content)) == list(messages(read_low_level(client, name, 3).content))


def test_keep_alives_are_messages_too(client, create, subscribe, name):
    create(name, schema=AVRO)
    path = f"/subscriptions/{subscribe(name)}/events?batch_flush_timeout=1&stream_keep_alive_limit=2"
    response = client.get(path, headers={"Accept": MEDIA_TYPE})
    found = list(messages(response.content))
    assert len(found) >= 2
    assert {(each["cursor"]["event_type"], len(each["events"])) for each in found} == {(name, 0)}
    assert (found[0]["info"], found[1]["info"]) == ("Stream started", None)


def test_a_subscriptions_stream_may_be_binary(client, create, subscribe, name):
    """Reference streams#avro-batches."""
    create(name, schema=AVRO)
    subscription_id = subscribe(name, read_from="begin")
    publish(client, name, order(1))
    path = f"/subscriptions/{subscription_id}/events?stream_limit=1&batch_flush_timeout=1"
    with client.stream("GET", path, headers={"Accept": MEDIA_TYPE}) as response:
        assert response.headers["content-type"] == "application/x-json-stream"
        stream_id = response.headers["x-nakadi-streamid"]
        read = response.iter_bytes()
        data = next(read, b"")
        (found, *_) = messages(data)
        cursor = found["cursor"]
        committed = client.post(
            f"/subscriptions/{subscription_id}/cursors",
            json={"items": [cursor]},
            headers={"X-Nakadi-StreamId": stream_id},
        )
        assert committed.status_code == 204, committed.text
        rest = list(messages(b"".join(read)))
    assert (cursor["event_type"], len(found["events"])) == (name, 1)
    assert "Stream limit" in [found, *rest][-1]["info"]


@pytest.mark.parametrize("accept", ["*/*", "application/x-json-stream", f"{MEDIA_TYPE}, */*"])
def test_only_clients_that_accept_avro_alone_get_it(client, create, name, accept):
    """Reference low-level-streams#avro-batches."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event()])
    response = read_low_level(client, name, 1, accept=accept)
    assert response.headers["content-type"] == "application/x-json-stream"
    assert response.json()["events"][0]["order_id"] == "1"


def test_events_of_both_formats_are_distinguished_by_the_type_of_their_versions(client, create, name):
    create(name)
    client.post(f"/event-types/{name}/schemas", json=AVRO)
    client.post(f"/event-types/{name}/events", json=[event()])
    publish(client, name, order(1, version="2.0.0"))
    (found,) = messages(read_low_level(client, name, 2).content)
    types = []
    for each in found["events"]:
        version = each["metadata"]["version"]
        types.append(client.get(f"/event-types/{name}/schemas/{version}").json()["type"])
    assert types == ["json_schema", "avro_schema"]
    assert json.loads(found["events"][0]["payload"])["order_id"] == "1"
    assert found["events"][1]["payload"] == datum({"order_id": "1", "amount": 1})


def test_events_in_json_are_read_in_binary_streams_as_they_are(client, create, name):
    create(name)
    client.post(f"/event-types/{name}/events", json=[event()])
    stored = read_low_level(client, name, 1, accept="*/*").json()["events"][0]
    (found,) = messages(read_low_level(client, name, 1).content)
    (each,) = found["events"]
    assert json.loads(each["payload"]) == stored
    assert each["metadata"]["version"] == "1.0.0"
    assert client.get(f"/event-types/{name}/schemas/1.0.0").json()["type"] == "json_schema"


def delete(client, name, *keys):
    envelopes = [envelope(b"", event_type=name, partition_compaction_key=key) for key in keys]
    path = f"/event-types/{name}/deleted-events"
    return client.post(path, content=batch(*envelopes), headers={"Content-Type": MEDIA_TYPE})


def test_events_are_deleted_by_their_keys(client, create, name):
    create(name, schema=AVRO, cleanup_policy="compact")
    assert publish(client, name, order(1, partition_compaction_key="a")).status_code == 200
    response = delete(client, name, "a", "b")
    assert (response.status_code, response.content) == (200, b"")
    publish(client, name, order(2, partition_compaction_key="b"))
    # Consumers never see that something was deleted (reference publishing#delete-events).
    found = [each for message in messages(read_low_level(client, name, 2).content) for each in message["events"]]
    assert [each["payload"] for each in found] == [datum({"order_id": str(n), "amount": n}) for n in (1, 2)]


def test_only_compacted_event_types_accept_deletions(client, create, name):
    create(name, schema=AVRO)
    problem(delete(client, name, "a"), 422, "non compacted event type")


def test_a_batch_may_be_for_one_subscription_alone(client, create, name):
    create(name, schema=AVRO)
    publish(client, name, order(1), **{"X-CONSUMER-TAG": f"consumer_subscription_id={EID}"})
    publish(client, name, order(2))
    (found,) = messages(read_low_level(client, name, 1).content)
    assert [each["payload"] for each in found["events"]] == [datum({"order_id": "2", "amount": 2})]


def test_a_batch_for_an_invalid_subscription_is_rejected_before_it_is_read(client, create, name):
    create(name, schema=AVRO)
    refused = publish(client, name, order(1), **{"X-CONSUMER-TAG": "nope"})
    problem(refused, 422, "header tag parameter is imbalanced")
