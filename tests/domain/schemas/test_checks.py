"""JSON schemas that an event type may have, and their interpretation: reference schemas#json-schemas."""

import json

import jsonschema_rs
import pytest
from hypothesis import given, settings

from rioni.domain.errors import Invalid
from rioni.domain.schemas.checks import SCHEMA_BYTES_MAX, check_paths, check_schema
from rioni.domain.schemas.field_path import DeclaredPaths
from rioni.domain.schemas.patterns import PATTERN_BYTES_MAX
from rioni.domain.schemas.validation import EventValidator
from tests.support.campaigns import length
from tests.support.strategies import EID, json_objects, schemas


METADATA = {"eid": EID, "occurred_at": "2024-01-02T03:04:05Z"}
STRING = {"type": "string"}


def check(schema, *, category="undefined", mode="forward", cleanup_policy="delete"):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return check_schema(
        text, name="order.created", category=category, compatibility_mode=mode, cleanup_policy=cleanup_policy
    )


def accepts(schema, event, **arguments):
    return EventValidator(check(schema, **arguments)).is_valid(event)


# --- validity ---


def test_many_schemas_below_long_names_are_rejected():
    """Reference schemas#schema-limits."""
    schema = {"properties": {f"{number:x}": {} for number in range(4_000)}}
    for _ in range(25):
        schema = {"properties": {"p" * 3_000: schema}}
    with pytest.raises(Invalid, match="too many nested schemas with long names"):
        check(schema)


@pytest.mark.parametrize(
    ("schema", "detail"),
    [
        ("{", "schema must be a valid json: Expecting property name enclosed in double quotes at position 1"),
        ("{} {}", "schema must be a valid json: Unexpected characters after the value at position 3"),
        ('{"a":1,}', "schema must be a valid json: Expecting property name enclosed in double quotes at position 7"),
        ('{"a":1,"a":2}', 'schema must be a valid json: Duplicate key "a"'),
        ('{"maximum":1e999}', "schema must be a valid json: Can not use number '1e999' cause it is too big"),
        ('{"maximum":NaN}', "schema must be a valid json: Unexpected NaN"),
        ("[]", "schema must be a valid json: it is not an object"),
        ("true", "schema must be a valid json: it is not an object"),
        ('{"type":"array"}', '"type" of root element in schema can only be "object"'),
        ('{"type":["object"]}', '"type" of root element in schema can only be "object"'),
        (
            '{"$schema":"http://json-schema.org/draft-03/schema#"}',
            "could not determine schema version: no meta-schema is known with URL [http://json-schema.org/draft-03/schema#]",
        ),
        ('{"$schema":1}', "could not determine schema version: no meta-schema is known with URL [1]"),
        ('{"properties":{"a":{"$ref":"http://x/y"}}}', "external url reference is not supported: http://x/y"),
        ('{"$ref":"file:///etc/passwd"}', "external url reference is not supported: file:///etc/passwd"),
        ('{"$ref":"definitions.json#/a"}', "external url reference is not supported: definitions.json#/a"),
        (
            '{"$ref":"#/definitions/a"}',
            "schema must be a valid json-schema: reference #/definitions/a points nowhere",
        ),
        (
            '{"properties":{"a":{"pattern":"(?=b)"}}}',
            'invalid regex pattern in the schema: malformed, unsupported or too large "(?=b)"',
        ),
        (
            r'{"properties":{"a":{"pattern":"(b)\\1"}}}',
            r'invalid regex pattern in the schema: malformed, unsupported or too large "(b)\1"',
        ),
        (
            '{"patternProperties":{"(":{}}}',
            'invalid regex pattern in the schema: malformed, unsupported or too large "("',
        ),
        ('{"properties":{"a":{"pattern":"(a{1000}){1000}"}}}', "invalid regex pattern in the schema: "),
        ('{"multipleOf":0}', "schema must be a valid json-schema: #/multipleOf: "),
        ('{"properties":3}', "schema must be a valid json-schema: #/properties: "),
        ('{"properties":{"a":{"type":"strin"}}}', "schema must be a valid json-schema: #/properties/a/type: "),
        ('{"allOf":[]}', "schema must be a valid json-schema: #/allOf: "),
        ('{"minLength":-1}', "schema must be a valid json-schema: #/minLength: "),
        ('{"$ref":"#"}', "schema must be a valid json-schema: references form a cycle"),
    ],
)
def test_an_invalid_schema_is_rejected_with_the_text_of_the_contract(schema, detail):
    """Reference schemas#schema-checks, schemas#patterns."""
    with pytest.raises(Invalid) as caught:
        check(schema)
    assert str(caught.value).startswith(detail)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"required": []},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"a": {"minimum": 1, "exclusiveMinimum": True}},
        },
        {"$schema": "http://json-schema.org/draft-06/schema#", "properties": {"a": {"const": 1}, "b": True}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "if": {}, "then": {}},
        {"properties": {"$ref": STRING, "not": STRING, "id": STRING}},
        {"id": "http://example.com/x", "definitions": {"a": STRING}, "properties": {"a": {"$ref": "#/definitions/a"}}},
        {"components": {"x": STRING}, "properties": {"a": {"$ref": "#/components/x"}}},
        {"properties": {"a": {"enum": [{"$ref": "http://x/y"}], "default": {"$ref": 1}}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"x-anything": 1, "properties": {"a": {"example": "b", "readOnly": True}}},
    ],
)
def test_an_ordinary_schema_is_accepted(schema):
    """Reference schemas#drafts, schemas#effective-schema-steps."""
    metadata = {"metadata": METADATA}
    data = metadata | {"data_type": "x", "data_op": "C", "data": {}}
    for category, event in (("undefined", {}), ("data", data), ("business", metadata)):
        for mode in ("forward", "none"):
            assert accepts(schema, event, category=category, mode=mode)


def doubling(levels):
    """Hostile schema S7: expanding the references never ends."""

    def reference(n):
        return {"$ref": f"#/definitions/d{n}"}

    members = {f"d{n}": {"anyOf": [reference(n + 1), reference(n + 1)]} for n in range(levels)}
    return {"definitions": members | {f"d{levels}": STRING}, "properties": {"a": reference(0)}}


@pytest.mark.parametrize(
    ("schema", "detail"),
    [
        (doubling(40), "expand to more than 100000 schemas"),
        ({"title": "x" * SCHEMA_BYTES_MAX}, f"max size is {SCHEMA_BYTES_MAX} bytes"),
        ({"title": "\u20ac" * (SCHEMA_BYTES_MAX // 3)}, f"max size is {SCHEMA_BYTES_MAX} bytes"),
        (json.loads('{"items":' * 64 + "{}" + "}" * 64), "more than 64 nested"),
        ({"allOf": [{}] * 5_001}, "it consists of 5002 schemas, at most 5000 can be"),
        ({"properties": {"a": {"pattern": "a" * (PATTERN_BYTES_MAX + 1)}}}, "invalid regex pattern"),
        ({"patternProperties": {"a" * (PATTERN_BYTES_MAX + 1): {}}}, "invalid regex pattern"),
    ],
)
def test_a_schema_beyond_a_budget_is_rejected(schema, detail):
    """Reference schemas#schema-limits."""
    text = json.dumps(schema, ensure_ascii=False)
    with pytest.raises(Invalid, match=detail):
        check(text)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "a" * PATTERN_BYTES_MAX}}},
        json.loads('{"items":' * 63 + "{}" + "}" * 63),
        {"properties": {f"p{n}": {"$ref": "#"} for n in range(400)}},
        {"properties": {"a": {"pattern": "^(a+)+$"}, "b": {"format": "email"}, "c": {"format": "idn-email"}}},
        {"properties": {"a": {"const": "{definition_rule}", "definition_rule": "__import__('os')"}}},
        doubling(12),
    ],
)
def test_a_schema_within_the_budgets_is_accepted(schema):
    assert accepts(schema, {}, mode="none")


def test_definitions_that_differ_in_case_are_two():
    schema = {
        "definitions": {"Foo": {"type": "integer"}, "foo": STRING},
        "properties": {"a": {"$ref": "#/definitions/Foo"}, "b": {"$ref": "#/definitions/foo"}},
    }
    assert accepts(schema, {"a": 1, "b": "s"})
    assert not accepts(schema, {"b": 1})


def test_the_identifier_of_a_part_does_not_redirect_its_references():
    part = {"id": "http://example.com/part", "$ref": "#/definitions/a"}
    schema = {"definitions": {"a": STRING}, "properties": {"a": {"id": "http://x/y", "allOf": [part]}}}
    assert accepts(schema, {"a": "s"})
    assert not accepts(schema, {"a": 1})


@settings(max_examples=length(80, 2_000))
@given(schemas, json_objects)
def test_any_schema_is_either_rejected_or_usable(schema, event):
    for category in ("undefined", "data", "business"):
        for mode in ("compatible", "forward", "none"):
            try:
                effective = check(schema, category=category, mode=mode)
            except Invalid:
                continue
            validator = EventValidator(effective)
            wrapped = {"metadata": METADATA, "data_op": "C", "data_type": "x", "data": event}
            submitted = wrapped if category == "data" else {**event, "metadata": METADATA}
            assert validator.is_valid(submitted) or validator.explain(submitted).startswith("#")
            assert validator.is_valid(submitted) == validator.all_valid([submitted])


@settings(max_examples=length(80, 2_000))
@given(schemas, json_objects)
def test_mode_forward_and_category_undefined_use_the_schema_unchanged(schema, event):
    schema.pop("$ref", None)
    try:
        effective = check(schema)
    except Invalid:
        return
    without_formats = json.loads(json.dumps(schema).replace('"format"', '"x-format"'))
    if without_formats == schema and "required" not in json.dumps(schema):
        plain = jsonschema_rs.Draft4Validator(schema, pattern_options=jsonschema_rs.RegexOptions())
        assert effective.compile().is_valid(event) == plain.is_valid(event)


# --- mode compatible ---


@pytest.mark.parametrize(
    "keyword",
    [
        "not",
        "additionalItems",
        "additionalProperties",
        "patternProperties",
        "x-extensible-enum",
        "example",
        "readOnly",
        "const",
    ],
)
def test_mode_compatible_rejects_other_keywords(keyword):
    """Reference schemas#compatible-keywords."""
    schema = {"properties": {"a": {keyword: {}}}}
    with pytest.raises(Invalid) as caught:
        check(schema, mode="compatible")
    assert str(caught.value) == (
        f"Invalid schema: Invalid schema found in [#/properties/a]: extraneous key [{keyword}] is not permitted"
    )
    check(schema, mode="forward")


def test_mode_compatible_names_every_error():
    """Reference schemas#compatible-keywords."""
    with pytest.raises(Invalid) as caught:
        check({"not": {}, "items": {"not": {}}, "dependencies": {"a": {"not": {}}}}, mode="compatible")
    assert str(caught.value) == "Invalid schema: " + ", ".join(
        f"Invalid schema found in [{pointer}]: extraneous key [not] is not permitted"
        for pointer in ("#", "#/items", "#/dependencies/a")
    )


def test_a_property_may_be_named_like_a_keyword():
    """Reference schemas#compatible-keywords."""
    assert accepts({"properties": {"not": STRING}}, {"not": "a"}, mode="compatible")


@pytest.mark.parametrize(
    ("schema", "event", "accepted"),
    [
        ({}, {}, True),
        ({}, {"a": 1}, False),
        ({"type": "object"}, {"a": 1}, False),
        ({"properties": {"a": STRING}}, {"a": "s"}, True),
        ({"properties": {"a": STRING}}, {"b": "s"}, False),
        ({"required": ["a"]}, {"a": "s"}, False),
        ({"maxProperties": 1}, {"a": 1}, False),
        ({"properties": {"a": {"properties": {"b": {}}}}}, {"a": {"c": 1}}, False),
        ({"properties": {"a": {"type": ["object", "null"]}}}, {"a": {"c": 1}}, False),
        ({"properties": {"a": {"type": ["object", "null"]}}}, {"a": None}, True),
        ({"properties": {"a": {"items": [STRING]}}}, {"a": ["s", "t"]}, False),
        ({"properties": {"a": {"items": STRING}}}, {"a": ["s", "t"]}, True),
        ({"properties": {"a": {"items": {"type": "object"}}}}, {"a": [{"b": 1}]}, False),
        ({"properties": {"a": {"anyOf": [{"type": "object"}, STRING]}}}, {"a": {"b": 1}}, False),
        ({"properties": {"a": {"anyOf": [{"type": "object"}, STRING]}}}, {"a": "s"}, True),
        (
            {"definitions": {"d": {"type": "object"}}, "properties": {"a": {"$ref": "#/definitions/d"}}},
            {"a": {"b": 1}},
            False,
        ),
        ({"properties": {"a": {"$ref": "#/definitions/d"}}, "definitions": {"d": STRING}}, {"a": "s"}, True),
        ({"properties": {"a": STRING}, "dependencies": {"a": {"properties": {"a": {}}}}}, {"a": "s"}, True),
    ],
)
def test_mode_compatible_rejects_undeclared_properties(schema, event, accepted):
    assert accepts(schema, event, mode="compatible") is accepted


# --- mode none (reference schemas#closed-objects) ---


@pytest.mark.parametrize(
    ("schema", "event", "accepted"),
    [
        ({}, {"a": 1}, False),
        ({}, {}, True),
        ({"additionalProperties": True}, {"a": 1}, True),
        ({"additionalProperties": STRING}, {"a": "s"}, True),
        ({"patternProperties": {"^x-": {}}}, {"a": 1, "x-b": 2}, True),
        ({"properties": {"a": {"type": "object"}}}, {"a": {"b": 1}}, False),
        ({"properties": {"a": {"type": "object", "additionalProperties": True}}}, {"a": {"b": 1}}, True),
        ({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}, {"a": 1, "b": 2}, True),
        (
            {
                "definitions": {"base": {"properties": {"a": {}}}},
                "properties": {"x": {"allOf": [{"$ref": "#/definitions/base"}, {"properties": {"b": {}}}]}},
            },
            {"x": {"a": 1, "b": 2}},
            True,
        ),
        (
            {"definitions": {"d": {"type": "object"}}, "properties": {"a": {"$ref": "#/definitions/d"}}},
            {"a": {"b": 1}},
            False,
        ),
    ],
)
def test_mode_none_closes_objects_by_default(schema, event, accepted):
    assert accepts(schema, event, mode="none") is accepted


def test_mode_forward_leaves_objects_open():
    assert accepts({}, {"a": 1}, mode="forward")


# --- categories ---


def test_a_business_event_needs_metadata():
    """Reference schemas#business-events."""
    assert accepts(
        {"properties": {"a": STRING}}, {"a": "s", "metadata": METADATA}, category="business", mode="compatible"
    )
    assert not accepts({}, {"a": "s"}, category="business")
    assert not accepts({}, {"a": "s", "metadata": {}}, category="business")


def test_a_business_event_needs_metadata_also_behind_a_root_reference():
    """Reference schemas#business-events."""
    schema = {"definitions": {"d": {"properties": {"a": STRING}}}, "$ref": "#/definitions/d"}
    for mode in ("compatible", "forward", "none"):
        assert accepts(schema, {"a": "s", "metadata": METADATA}, category="business", mode=mode)
        assert not accepts(schema, {"a": "s"}, category="business", mode=mode)
        assert not accepts(schema, {"a": 1, "metadata": METADATA}, category="business", mode=mode)


def test_metadata_is_reserved_in_business_events():
    """Reference schemas#schema-checks."""
    schema = {"properties": {"metadata": {}}}
    with pytest.raises(Invalid, match=r'^"metadata" property is reserved$'):
        check(schema, category="business")
    check(schema, category="undefined")
    check(schema, category="data")


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({}, True),
        ({"data_op": "X"}, False),
        ({"data_type": 1}, False),
        ({"data": {"a": 1}}, False),
        ({"data": {"b": {"a": "s"}}}, True),
        ({"data": {"b": {"a": 1}}}, False),
        ({"data": {"self": {"self": {"a": 1}}}}, False),
        ({"more": 1}, False),
        *(({missing: None}, False) for missing in ("metadata", "data_type", "data_op", "data")),
    ],
)
def test_a_data_event_wraps_data_of_the_submitted_schema(change, accepted):
    """Reference schemas#data-events, event-types#categories."""
    schema = {
        "definitions": {"d": {"properties": {"a": STRING}}},
        "properties": {"a": STRING, "b": {"$ref": "#/definitions/d"}, "self": {"$ref": "#"}},
    }
    event = {"metadata": METADATA, "data_type": "order", "data_op": "C", "data": {"a": "s"}, **change}
    event = {name: value for name, value in event.items() if value is not None}
    for mode in ("compatible", "forward", "none"):
        assert accepts(schema, event, category="data", mode=mode) is accepted


@pytest.mark.parametrize(
    ("change", "accepted"),
    [
        ({}, True),
        ({"eid": "x"}, False),
        ({"eid": EID.upper()}, True),
        ({"occurred_at": 1}, False),
        ({"occurred_at": "yesterday"}, False),
        ({"event_type": "order.created"}, True),
        ({"event_type": "x"}, False),
        ({"partition": "0"}, True),
        ({"partition": 0}, False),
        ({"parent_eids": [EID]}, True),
        ({"parent_eids": ["x"]}, False),
        ({"flow_id": ""}, True),
        ({"flow_id": None}, False),
        ({"span_ctx": {"k": "v"}}, True),
        ({"span_ctx": {"k": 1}}, False),
        ({"received_at": "2024-01-02T03:04:05Z"}, False),
        ({"version": "1.0.0"}, False),
        ({"published_by": "me"}, False),
        ({"partition_compaction_key": "k"}, False),
    ],
)
def test_metadata_have_the_members_that_publishers_may_set(change, accepted):
    """Reference schemas#metadata."""
    assert accepts({}, {"metadata": {**METADATA, **change}}, category="business") is accepted


@pytest.mark.parametrize(
    ("key", "accepted"),
    [({}, False), ({"partition_compaction_key": ""}, False), ({"partition_compaction_key": "k"}, True)],
)
@pytest.mark.parametrize("cleanup_policy", ["compact", "compact_and_delete"])
def test_compacted_events_need_a_key(cleanup_policy, key, accepted):
    """Reference schemas#metadata, event-types#cleanup-policy."""
    event = {"metadata": {**METADATA, **key}}
    assert accepts({}, event, category="business", cleanup_policy=cleanup_policy) is accepted


# --- paths ---


def test_paths_that_the_schema_does_not_declare_are_named():
    """Reference event-types#ordering-fields."""
    effective = check({"properties": {"a": {"properties": {"b": STRING}}}}, category="business")
    check_paths(DeclaredPaths(effective.document), "ordering_key_fields", ["a", "a.b", "metadata.occurred_at"])
    with pytest.raises(Invalid) as caught:
        check_paths(DeclaredPaths(effective.document), "ordering_key_fields", ["a.b", "x", "b.c"])
    assert str(caught.value) == "ordering_key_fields [x, b.c] absent in schema"


def test_key_fields_of_data_events_are_relative_to_their_data():
    effective = check({"properties": {"a.b": STRING}}, category="data")
    check_paths(DeclaredPaths(effective.document), "ordering_key_fields", ["data.'a.b'", "data_op"])
    check_paths(DeclaredPaths(effective.document), "partition_key_fields", ["'a.b'"], within="data")
    with pytest.raises(Invalid, match=r"^partition_key_fields \[data_op\] absent in schema$"):
        check_paths(DeclaredPaths(effective.document), "partition_key_fields", ["data_op"], within="data")
