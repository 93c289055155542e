"""Events of Avro schemas as JSON schemas describe them."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.avro.event_schema import EventSchema, events_as_json
from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.filter_check import check_filter
from tests.support.avro import datum
from tests.support.avro_strategies import schemas, values


@given(st.data())
def test_what_an_avro_schema_writes_is_valid_by_its_description(data):
    schema = data.draw(schemas())
    value = data.draw(values(schema))
    text = json.dumps(schema)
    event = msgspec.json.decode(EventSchema(text, 1_000_000).json_of(datum(value, schema)))
    assert events_as_json(text).compile().is_valid(event)


ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "total", "type": "double"},
            {"name": "coupon", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "items", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
        ],
    }
)


def test_filters_are_compared_with_avro_schemas():
    """Reference subscriptions#filter-check."""
    known = {"order": events_as_json(ORDER)}
    for fits in (
        "event.total > 1 && event.coupon != null && event.at > 1700000000000",
        "event.kind in ['A', 'B'] && event.items.exists(item, item.x == 1)",
        "metadata.eid == 'x' && metadata.received_at != 'x' && metadata.event_owner == 'y'",
    ):
        assert check_filter(fits, known) == []
    for wrong in ("event.totl > 1", "event.at == 'x'", "event.at.getFullYear() == 1", "metadata.flow == 'x'"):
        with pytest.raises(Invalid, match=r"by the schema of order|the schema of order excludes it"):
            check_filter(wrong, known)
