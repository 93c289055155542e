"""Models of events: what schemas become in Python, and that no valid event is changed by them."""

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rioni.client import EventType, Schema
from rioni.client.codegen.event_models import STYLES, event_models


MONEY = {
    "type": "object",
    "description": 'An amount\\ of """money"""\x00, "exactly"',
    "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}},
    "required": ["amount", "currency"],
}
ORDER = {
    "title": "An order",
    "properties": {
        "order_number": {"type": "string", "description": "Counts\nup."},
        "class": {"enum": ["a", 'b"', "Money"]},
        "total": {"$ref": "#/definitions/money"},
        "lines": {
            "type": "array",
            "items": {"properties": {"sku": {"type": "string"}, "price": {"$ref": "#/definitions/money"}}},
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "note": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string", "format": "uuid"}]},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "id": {"type": "string", "format": "uuid"},
        "two words": {"type": "boolean"},
        "two-words": {"const": 5},
        "payment": {"oneOf": [{"$ref": "#/definitions/card"}, {"$ref": "#/definitions/wire"}, {"type": "null"}]},
        "tree": {"$ref": "#/definitions/tree"},
        "any": {},
        "dt": {"type": "array"},
        "__name": {"type": "object"},
    },
    "required": ["order_number", "two words"],
    "definitions": {
        "money": MONEY,
        "card": {
            "allOf": [{"properties": {"number": {"type": "string"}}}, {"properties": {"kind": {"const": "card"}}}]
        },
        "wire": {"type": "object", "properties": {"iban": {"type": "string"}, "kind": {"enum": ["wire"]}}},
        "tree": {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#/definitions/tree"}}},
        },
    },
}
NAMES_FOR_DATACLASSES = ("order_number", "total", "lines", "labels", "note", "day", "at", "payment", "tree", "any")
PLAIN_ORDER = ORDER | {
    "properties": {name: ORDER["properties"][name] for name in NAMES_FOR_DATACLASSES},
    "required": ["order_number"],
}
EVENT = {
    "order_number": "1",
    "class": "a",
    "total": {"amount": 9_007_199_254_740_993, "currency": "EUR"},
    "lines": [{"sku": "x", "price": {"amount": 0.5, "currency": "EUR"}}, {}],
    "labels": {"a": "b"},
    "note": None,
    "either": 7,
    "day": "2026-01-02",
    "at": "2026-01-02T03:04:05Z",
    "id": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11",
    "two words": True,
    "two-words": 5,
    "payment": {"kind": "wire", "iban": "DE"},
    "tree": {"children": [{"children": []}, {}]},
    "any": [1, {"a": None}],
    "dt": [1],
    "__name": {"a": 1},
    "metadata": {
        "eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11",
        "occurred_at": "2026-01-02T03:04:05Z",
        "version": "1.0.0",
    },
}


def event_type(schema, name="order.created", **members):
    return EventType(name=name, owning_application="shop", schema=Schema.json(schema), **members)


def avro(schema):
    return EventType(name="order", owning_application="a", schema=Schema(schema=json.dumps(schema), type="avro_schema"))


def load(source):
    """The module that was written."""
    module = types.ModuleType("models_of_a_test")
    sys.modules[module.__name__] = module
    exec(compile(source, "models", "exec"), module.__dict__)
    return module


def test_members_get_types_and_names_of_python():
    source = event_models([event_type(ORDER)])
    order = source.split("class OrderCreated(")[1].split("\nclass ")[0]
    assert order.splitlines()[1:] == [
        '    """An order"""',
        "",
        "    order_number: str",
        '    """Counts up."""',
        '    class_: Literal["a", "b\\"", "Money"] | None = msgspec.field(name="class", default=None)',
        "    total: Money | None = None",
        "    lines: list[Line] | None = None",
        "    labels: dict[str, str] | None = None",
        "    note: str | None | msgspec.UnsetType = msgspec.UNSET",
        "    either: str | int | None = None",
        "    day: dt.date | None = None",
        "    at: dt.datetime | None = None",
        "    id: UUID | None = None",
        '    two_words: bool = msgspec.field(name="two words")',
        '    two_words_: Literal[5] | None = msgspec.field(name="two-words", default=None)',
        "    payment: Payment | None | msgspec.UnsetType = msgspec.UNSET",
        "    tree: Tree | None = None",
        "    any: Any = msgspec.UNSET",
        '    dt_: list[Any] | None = msgspec.field(name="dt", default=None)',
        '    member_name: dict[str, Any] | None = msgspec.field(name="__name", default=None)',
        "    metadata: Metadata | None = None",
        "",
    ]
    payment = source.split("class Payment(")[1].split("\nclass ")[0]
    assert payment.splitlines()[1:4] == [
        "    number: str | None = None",
        '    kind: Literal["wire", "card"] | None = None',
        "    iban: str | None = None",
    ]


def test_an_event_survives_decoding_and_encoding():
    model = load(event_models([event_type(ORDER)])).OrderCreated
    event = msgspec.json.decode(json.dumps(EVENT), type=model)
    assert (event.class_, event.total.currency, event.at.year) == ("a", "EUR", 2026)
    assert json.loads(msgspec.json.encode(event)) == EVENT
    minimal = {"order_number": "1", "two words": False}
    assert json.loads(msgspec.json.encode(msgspec.json.decode(json.dumps(minimal), type=model))) == minimal


def test_formats_may_stay_texts():
    source = event_models([event_type(ORDER)], formats=False)
    assert "import datetime" not in source
    assert "UUID" not in source


def test_dataclasses():
    model = load(event_models([event_type(PLAIN_ORDER)], style="dataclass")).OrderCreated
    wanted = {name: value for name, value in EVENT.items() if name in {*PLAIN_ORDER["properties"], "metadata"}}
    event = msgspec.json.decode(json.dumps(wanted), type=model)
    assert event.lines[1].sku is msgspec.UNSET
    assert json.loads(msgspec.json.encode(event)) == wanted


def test_a_dataclass_has_no_other_names():
    with pytest.raises(ValueError, match=r"'class' of OrderCreated can't have this name"):
        event_models([event_type({"properties": {"class": {}}})], style="dataclass")


def test_data_change_events_have_the_schema_in_data():
    models = load(event_models([event_type(ORDER, category="data")]))
    event = {"data_type": "order", "data_op": "U", "data": EVENT, "metadata": EVENT["metadata"]}
    del event["data"]["metadata"]
    decoded = msgspec.json.decode(json.dumps(event), type=models.OrderCreated)
    assert decoded.data.order_number == "1"
    assert json.loads(msgspec.json.encode(decoded)) == event


def test_events_of_category_undefined_have_no_metadata():
    assert "Metadata" not in event_models([event_type(ORDER, category="undefined")])


def test_events_without_declared_members_are_dictionaries():
    assert "OrderCreated: TypeAlias = dict[str, Any]" in event_models([event_type({})])
    values = {"additionalProperties": {"type": "integer"}}
    assert "counts: dict[str, int]" in event_models([event_type({"properties": {"counts": values}})])


def test_classes_of_several_event_types_have_names_of_their_own():
    source = event_models(
        [event_type(ORDER, "order"), event_type(ORDER, "order-money"), event_type(ORDER, "ORDER.any_2")]
    )
    module = load(source)
    assert {"Order", "Money", "OrderMoney", "OrderAny2", "OrderMoneyMoney", "OrderAny2Line"} <= vars(module).keys()
    assert source.count("class Metadata(") == 1


def test_schemas_of_avro():
    line = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": ["null", "string"], "doc": "Which."}]}
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    digest = {"type": "fixed", "name": "Digest", "size": 2}
    fields = {
        "lines": {"type": "array", "items": line},
        "first": ["null", "shop.Line"],
        "kind": kind,
        "other": "Kind",
        "digest": digest,
        "weights": {"type": "map", "values": "double"},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
    }
    record = {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": name, "type": type_} for name, type_ in fields.items()],
    }
    source = event_models([avro(record)])
    model = load(source).Order
    event = {
        "lines": [{"sku": None}],
        "first": {"sku": "x"},
        "kind": "A",
        "other": "B",
        "digest": "ab",
        "weights": {"a": 1.5},
        "at": 5,
    }
    assert json.loads(msgspec.json.encode(msgspec.json.decode(json.dumps(event), type=model))) == event
    assert '    """Which."""' in source
    with pytest.raises(ValueError, match="order: Unknown is no type of Avro"):
        event_models([avro("Unknown")])


@pytest.mark.parametrize(
    ("reference", "reason"),
    [("#/definitions/x", "leads nowhere"), ("http://x", "out of the schema"), ("#/properties/a", "in a circle")],
)
def test_references_that_lead_nowhere_are_named(reference, reason):
    with pytest.raises(ValueError, match=rf"order\.created: .*{reason}"):
        event_models([event_type({"properties": {"a": {"$ref": reference}}})])


def test_an_unknown_style_is_refused():
    with pytest.raises(ValueError, match="'pydantic' is not a style; there are msgspec, dataclass"):
        event_models([event_type({})], style="pydantic")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs the dependency group typing")
def test_models_pass_strict_type_checks(tmp_path: Path):
    (tmp_path / "structs.py").write_text(event_models([event_type(ORDER), event_type(ORDER, "b", category="data")]))
    (tmp_path / "classes.py").write_text(
        event_models([event_type(PLAIN_ORDER), event_type({}, "a")], style="dataclass")
    )
    command = [sys.executable, "-m", "mypy", "--strict", "structs.py", "classes.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# --- any schema, any event ---

NAMES = st.sampled_from(
    ["a", "b", "class", "list", "order-line", "order_line", "Money", "date", "dt", "UUID", "ä", "1st"]
)
VALUES = st.sampled_from(
    [
        {"type": "string"},
        {"type": ["string", "null"]},
        {"type": ["integer", "string", "boolean", "null"]},
        {"type": "integer"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "string", "format": "date-time"},
        {"type": ["null", "string"], "format": "uuid"},
        {"type": "array"},
        {"type": "object"},
        {"enum": ["a", "B c", None, 5, True]},
        {"enum": [[1], {"a": 1}, 0.5]},
        {"const": "a"},
        {"$ref": "#/definitions/shared"},
        {},
    ]
)


def _objects(values):
    declared = st.tuples(st.dictionaries(NAMES, values, min_size=1, max_size=4), st.sets(NAMES)).map(
        lambda both: {"type": "object", "properties": both[0], "required": sorted(both[1] & both[0].keys())}
    )
    maps = values.map(lambda value: {"type": "object", "additionalProperties": value})
    return st.one_of(declared, declared, maps)


def _nested(values):
    return st.one_of(
        _objects(values),
        values.map(lambda value: {"type": "array", "items": value}),
        st.lists(values, min_size=1, max_size=3).map(lambda several: {"oneOf": several}),
        _objects(values).map(lambda schema: {"allOf": [schema, {"description": "x"}]}),
    )


SCHEMAS = st.recursive(VALUES, _nested, max_leaves=8)
ROOTS = st.tuples(_objects(SCHEMAS), _objects(VALUES)).map(
    lambda both: {**both[0], "definitions": {"shared": both[1] | {"required": []}}}
)
SCALARS = {
    "string": st.text(max_size=3),
    "date-time": st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
    "uuid": st.uuids().map(str),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "null": st.none(),
}
ANYTHING = st.recursive(st.one_of(*SCALARS.values()), lambda values: st.lists(values, max_size=2), max_leaves=3)


def valid(schema, shared, depth=0):
    """Values that are valid by a schema, without members that it does not declare."""
    if "$ref" in schema:
        return valid(shared, shared, depth + 1) if depth < 4 else st.nothing()
    if "allOf" in schema:
        return valid(schema["allOf"][0], shared, depth)
    if "oneOf" in schema:
        return st.one_of(valid(each, shared, depth) for each in schema["oneOf"])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    if "type" not in schema:
        return ANYTHING
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of(_valid_of_type(name, schema, shared, depth) for name in names)


def _valid_of_type(name, schema, shared, depth):
    if name == "array":
        return st.lists(valid(schema.get("items", {}), shared, depth), max_size=2)
    if "properties" in schema:
        members = {member: valid(each, shared, depth) for member, each in schema["properties"].items()}
        required = {member: members.pop(member) for member in schema["required"]}
        return st.fixed_dictionaries(required, optional={each: it for each, it in members.items() if not it.is_empty})
    if name == "object":
        return st.dictionaries(
            SCALARS["string"], valid(schema.get("additionalProperties", {}), shared, depth), max_size=2
        )
    return SCALARS[schema.get("format", name) if name == "string" else name]


@given(data=st.data(), schema=ROOTS, style=st.sampled_from(STYLES))
def test_every_valid_event_survives_decoding_and_encoding(data, schema, style):
    try:
        source = event_models([event_type(schema, category="undefined")], style=style)
    except ValueError:
        assume(style != "dataclass")
        raise
    event = data.draw(valid(schema, schema["definitions"]["shared"]))
    decoded = msgspec.json.decode(json.dumps(event), type=load(source).OrderCreated)
    assert json.loads(msgspec.json.encode(decoded)) == event
