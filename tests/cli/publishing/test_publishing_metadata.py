import json

import pytest

from rioni.cli.publishing.publishing import Completion
from rioni.domain.errors import Invalid


NEW = {"eid": "new", "occurred_at": "now"}


def _complete(event, **options):
    return Completion("orders", new=lambda: NEW, **options).complete(event)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"{}", b'{"metadata":{"eid":"new","occurred_at":"now"}}'),
        (b'{ "a" : 1.50 }', b'{"metadata":{"eid":"new","occurred_at":"now"},"a" : 1.50}'),
        (b'{"a":"\\"metadata\\""}', b'{"metadata":{"eid":"new","occurred_at":"now"},"a":"\\"metadata\\""}'),
    ],
)
def test_an_event_without_metadata_gets_some_and_stays_as_it_is(event, expected):
    assert _complete(event) == expected


def test_complete_metadata_stay_as_they_are():
    event = b'{"metadata": {"eid":"a",  "occurred_at":"b", "flow_id":"c"}, "a": 1.50}'
    assert _complete(event) is event


def test_only_what_is_missing_is_added():
    event = b'{"a":1.50,"metadata":{"eid":"a","parent_eids":[]}}'
    assert _complete(event) == b'{"a":1.50,"metadata":{"eid":"a","occurred_at":"now","parent_eids":[]}}'


def test_metadata_whose_name_is_written_with_an_escape_are_found():
    assert json.loads(_complete(b'{"met\\u0061data":{"eid":"a","occurred_at":"b","version":"1"}}')) == {
        "metadata": {"eid": "a", "occurred_at": "b"}
    }


def test_what_only_a_broker_may_set_is_removed():
    event = {
        "metadata": {
            **NEW,
            "published_by": "a",
            "received_at": "b",
            "version": "1.0.0",
            "event_type": "other",
            "partition": "1",
            "flow_id": "f",
        }
    }
    assert json.loads(_complete(json.dumps(event).encode())) == {"metadata": {**NEW, "partition": "1", "flow_id": "f"}}


def test_the_name_of_the_event_type_itself_stays():
    event = b'{"metadata":{"eid":"a","occurred_at":"b","event_type":"orders"}}'
    assert _complete(event) is event


@pytest.mark.parametrize(("value", "key"), [('"A-1"', "A-1"), ("17", "17"), ("true", "true")])
def test_key_and_partition_are_set(value, key):
    completed = _complete(b'{"order":{"id":%s}}' % value.encode(), key="order.id", partition="3")
    assert json.loads(completed)["metadata"] == {**NEW, "partition": "3", "partition_compaction_key": key}


@pytest.mark.parametrize("event", [b"{}", b'{"order":1}', b'{"order":{"id":null}}', b'{"order":{"id":""}}'])
def test_an_event_without_its_key_is_refused(event):
    with pytest.raises(Invalid, match=r"it has no key: order\.id"):
        _complete(event, key="order.id")


def test_metadata_that_are_no_object_are_left_to_the_broker():
    assert _complete(b'{"metadata":1}') == b'{"metadata":1}'
