import pytest

from rioni.cli.publishing.checking import check_paths
from rioni.client import EventType, Schema
from rioni.domain.errors import Invalid


OPEN = {
    "properties": {
        "total": {"type": "number"},
        "lines": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}},
        "address": {"properties": {"city": {}}, "additionalProperties": False},
    }
}
CLOSED = {**OPEN, "additionalProperties": False}


def _event_type(schema, name="orders", **members):
    return EventType(name=name, owning_application="shop", schema=Schema.json(schema), **members)


@pytest.mark.parametrize("path", ["total", "lines.0.sku", "address.city", "metadata.eid", "metadata.received_at"])
def test_declared_paths_are_right(path):
    assert check_paths([_event_type(OPEN)], [path]) == []


@pytest.mark.parametrize(("path", "near"), [("totl", "total"), ("lines.0.skv", "sku"), ("metadatas.eid", "metadata")])
def test_a_path_that_nothing_declares_is_a_warning_with_the_nearest_name(path, near):
    assert check_paths([_event_type(OPEN)], [path]) == [f"No schema of orders declares {path}; did you mean {near}?"]


@pytest.mark.parametrize("path", ["address.ctiy", "total.x", "lines.sku"])
def test_a_path_that_no_valid_event_has_is_an_error(path):
    with pytest.raises(Invalid, match=f"No event of orders has {path}: the schema excludes it"):
        check_paths([_event_type(OPEN)], [path])


def test_of_several_event_types_one_that_has_the_path_is_enough():
    other = _event_type({"properties": {"name": {}}}, "customers")
    closed = _event_type({**CLOSED}, compatibility_mode="compatible")
    assert check_paths([closed, other], ["name"]) == []
    assert check_paths([closed, other], ["names"]) == [
        "No schema of orders or customers declares names; did you mean name?"
    ]


def test_schemas_that_can_not_be_checked_are_not():
    avro = EventType(
        name="a", owning_application="shop", schema=Schema(type="avro_schema", schema='{"type": "record", "name": "a"}')
    )
    broken = EventType(name="a", owning_application="shop", schema=Schema(schema="nonsense"))
    for each in (avro, broken):
        assert check_paths([each, _event_type(OPEN)], ["x"]) == []
