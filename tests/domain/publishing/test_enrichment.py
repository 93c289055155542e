import json

import pytest
from hypothesis import given

from rioni.domain.publishing.enrichment import Enrichment, EnrichmentError
from rioni.domain.publishing.rules import Publication
from tests.support.strategies import EID, as_written, event_texts


ADDED = {
    "published_by": "stups_shop",
    "received_at": "2023-11-14T22:13:20.123Z",
    "event_type": "order.created",
    "flow_id": "flow of the request",
    "partition": "3",
    "version": "1.2.0",
}


def enrich(text: str | bytes, partition: int = 3, publisher: str = "stups_shop", span_ctx=None) -> bytes:
    event = text if isinstance(text, bytes) else text.encode()
    publication = Publication(
        publisher=publisher, flow_id="flow of the request", received_at="2023-11-14T22:13:20.123Z", span_ctx=span_ctx
    )
    return Enrichment("order.created", "1.2.0", publication).enrich(event, json.loads(event)["metadata"], partition)


def metadata_of(event: bytes) -> dict:
    return json.loads(event)["metadata"]


def test_the_stored_form_of_an_event():
    event = f'{{"order_id":"1","metadata":{{"eid":"{EID}","occurred_at":"2024-01-02T03:04:05Z"}}}}'
    assert (
        enrich(event)
        == (
            f'{{"order_id":"1","metadata":{{"eid":"{EID}","occurred_at":"2024-01-02T03:04:05Z",'
            '"published_by":"stups_shop","received_at":"2023-11-14T22:13:20.123Z","event_type":"order.created",'
            '"flow_id":"flow of the request","partition":"3","version":"1.2.0"}}'
        ).encode()
    )


@given(event_texts())
def test_only_metadata_changes_and_other_values_keep_their_spelling(text):
    def payload(written):
        kind, *members = written
        return [kind, *(member for member in members if member[0] != "metadata")]

    stored = enrich(text)
    before, after = as_written(text), as_written(stored)
    assert payload(before) == payload(after)
    assert [name for name, _ in before[1:]] == [name for name, _ in after[1:]]


@given(event_texts())
def test_metadata_contain_the_fields_of_the_publisher_and_of_the_broker(text):
    said = json.loads(text)["metadata"]
    expected = {**said, **ADDED, "flow_id": said.get("flow_id") or ADDED["flow_id"]}
    assert metadata_of(enrich(text)) == expected


@given(event_texts(own_members=False))
def test_outside_of_metadata_every_byte_is_kept(text):
    event, stored = text.strip().encode(), enrich(text.strip())
    added = len(stored) - len(event)
    position = next((i for i, (a, b) in enumerate(zip(event, stored, strict=False)) if a != b), len(event))
    assert any(stored[:i] + stored[i + added :] == event for i in range(max(position - added, 0), position + 1))


@pytest.mark.parametrize(
    "event",
    [
        '{"\\u006detadata":{"eid":"a"},"x":"\\"metadata\\"","y":{"metadata":{"eid":"b"}}}',
        '{"a":{"metadata":{"eid":"a","occurred_at":"b"}},"metadata":{"eid":"a","occurred_at":"b"}}',
        '{"metadata":{"eid":"a","occurred_at":"b"},"a":{"metadata":{"eid":"a","occurred_at":"b"}}}',
        '{"a":"metadata","metadata":{"eid":"a","occurred_at":"b"}}',
        '{"a":"\\"metadata","metadata" : { "eid":"a", "occurred_at":"b" } }',
        '{"metadata":{"eid":"a","flow_id":"}","span_ctx":{"}":"{"}}}',
        '{"metadata":{}}',
        '{ "metadata" : { } , "b" : 1.50 }',
    ],
)
def test_metadata_is_found_at_any_place_and_in_any_spelling(event):
    stored = enrich(event)
    assert metadata_of(stored).items() >= (ADDED.items() - {("flow_id", ADDED["flow_id"])})
    assert {**json.loads(stored), "metadata": 0} == {**json.loads(event), "metadata": 0}


@pytest.mark.parametrize(
    ("member", "value", "stored"),
    [
        ("flow_id", "mine", "mine"),
        ("flow_id", "", "flow of the request"),
        ("partition", "9", "3"),
        ("partition", "3", "3"),
        ("event_type", "order.created", "order.created"),
        ("published_by", "other", "stups_shop"),
    ],
)
def test_fields_of_the_publisher_are_kept_or_overwritten(member, value, stored):
    text = json.dumps({"metadata": {member: value, "eid": EID}})
    assert metadata_of(enrich(text))[member] == stored
    assert enrich(text).count(f'"{member}"'.encode()) == 1


def test_names_are_escaped():
    assert metadata_of(enrich('{"metadata":{}}', publisher='"\\\n\u20ac'))["published_by"] == '"\\\n\u20ac'


def test_without_metadata_there_is_nothing_to_enrich():
    with pytest.raises(EnrichmentError, match=r"^enrichment error$"):
        enrich('{"metadata":1}')


@pytest.mark.parametrize("own", [{"trace": "mine"}, {}])
def test_an_event_keeps_its_own_span_context(own):
    text = json.dumps({"metadata": {"eid": EID, "occurred_at": "2024-01-02T03:04:05Z", "span_ctx": own}})
    assert metadata_of(enrich(text, span_ctx={"trace": "the request's"}))["span_ctx"] == own


@given(event_texts(own_members=False))
def test_an_event_without_a_span_context_gets_the_requests(text):
    assert metadata_of(enrich(text, span_ctx={"trace": "ü"}))["span_ctx"] == {"trace": "ü"}
    assert "span_ctx" not in metadata_of(enrich(text))
