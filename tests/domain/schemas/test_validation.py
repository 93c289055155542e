"""The error messages for events that violate their schema: reference schemas#validation-errors."""

import json

import pytest
from hypothesis import given, settings

from rioni.domain.errors import Invalid
from rioni.domain.schemas.checks import check_schema
from rioni.domain.schemas.validation import TEXT_CHARACTERS_MAX, VIOLATIONS_MAX, EventValidator, NoJsonSchema
from tests.support.campaigns import length
from tests.support.strategies import EID, json_objects, schemas


DRAFT_6 = {"$schema": "http://json-schema.org/draft-06/schema#"}
METADATA = {"eid": EID, "occurred_at": "2024-01-02T03:04:05Z"}


def validator(schema, *, category="undefined", cleanup_policy="delete"):
    effective = check_schema(
        json.dumps(schema),
        name="order.created",
        category=category,
        compatibility_mode="forward",
        cleanup_policy=cleanup_policy,
    )
    return EventValidator(effective)


def explain(schema, event, **arguments):
    checker = validator(schema, **arguments)
    assert not checker.is_valid(event)
    return checker.explain(event)


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"required": ["x"]}, {}, "required key [x] not found"),
        ({"additionalProperties": False}, {"x": 1}, "extraneous key [x] is not permitted"),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"x": 1}, "extraneous key [x] is not permitted"),
        (
            {"additionalProperties": False, "patternProperties": {"a": {}}},
            {"x": 1},
            "extraneous key [x] is not permitted",
        ),
        ({"type": "string"}, 1, "expected type: String, found: Integer"),
        ({"type": "string"}, -(2**31), "expected type: String, found: Integer"),
        ({"type": "string"}, 2**31, "expected type: String, found: Long"),
        ({"type": "string"}, 1.5, "expected type: String, found: Double"),
        ({"type": "string"}, True, "expected type: String, found: Boolean"),
        ({"type": "string"}, {}, "expected type: String, found: JSONObject"),
        ({"type": "string"}, [], "expected type: String, found: JSONArray"),
        ({"type": "string"}, None, "expected type: String, found: Null"),
        ({"type": "number"}, "s", "expected type: Number, found: String"),
        ({"type": "integer"}, "s", "expected type: Integer, found: String"),
        ({"type": "integer"}, 1.0, "expected type: Integer, found: Double"),
        ({"type": "boolean"}, "s", "expected type: Boolean, found: String"),
        ({"type": "object"}, "s", "expected type: JSONObject, found: String"),
        ({"type": "array"}, "s", "expected type: JSONArray, found: String"),
        ({"type": "null"}, "s", "expected type: Null, found: String"),
        ({"enum": ["a"]}, "x", "x is not a valid enum value"),
        ({"enum": ["a"]}, {"b": [1]}, '{"b":[1]} is not a valid enum value'),
        ({"pattern": "^a$"}, "x", "string [x] does not match pattern ^a$"),
        ({"format": "date-time"}, "x", "must be a valid date-time such as 2024-01-02T03:04:05.123Z"),
        (
            {"format": "date-time"},
            "2024-01-02T03:04:05.1234567891Z",
            "must be a valid date-time such as 2024-01-02T03:04:05.123Z",
        ),
        ({"format": "iso-4217"}, "eur", "must be a valid iso-4217 currency code such as EUR"),
        ({"format": "ISO-4217"}, "EURO", "must be a valid iso-4217 currency code such as EUR"),
        ({"format": "uri"}, "x", "must be a valid uri"),
        ({"format": "email"}, "x", "must be a valid email"),
        ({"format": "ipv4"}, "x", "must be a valid ipv4"),
        ({"format": "ipv6"}, "x", "must be a valid ipv6"),
        ({"format": "hostname"}, "-x", "must be a valid hostname"),
        ({"minLength": 1}, "", "expected minLength: 1, actual: 0"),
        ({"maxLength": 1}, "\U0001f600b", "expected maxLength: 1, actual: 2"),
        ({"minimum": 10}, 5, "5 is not greater or equal to 10"),
        ({"maximum": 1.5}, 5, "5 is not less or equal to 1.5"),
        ({"minimum": 5, "exclusiveMinimum": True}, 5, "5 is not greater than 5"),
        ({"maximum": 5, "exclusiveMaximum": True}, 5, "5 is not less than 5"),
        ({"multipleOf": 2}, 5, "5 is not a multiple of 2"),
        ({"minItems": 2}, [1], "expected minimum item count: 2, found: 1"),
        ({"maxItems": 1}, [1, 2], "expected maximum item count: 1, found: 2"),
        ({"uniqueItems": True}, [1, 1], "array items are not unique"),
        ({"items": [{}], "additionalItems": False}, [1, 2], "expected: [1] array items, found: [2]"),
        ({"minProperties": 2}, {"a": 1}, "minimum size: [2], found: [1]"),
        ({"maxProperties": 0}, {"a": 1}, "maximum size: [0], found: [1]"),
        ({"dependencies": {"a": ["x"]}}, {"a": 1}, "property [x] is required"),
        ({"dependencies": {"a": {"required": ["x"]}}}, {"a": 1}, "required key [x] not found"),
        ({"not": {"type": "string"}}, "s", 'subject must not be valid against schema {"type":"string"}'),
        ({"oneOf": [{}, {}, {"type": "null"}]}, 1, "2 subschemas matched instead of one"),
        ({"allOf": [{}, {"type": "string"}]}, 1, "expected type: String, found: Integer"),
    ],
)
def test_every_violation_has_the_text_of_the_contract(schema, value, text):
    """Reference schemas#violation-texts, schemas#formats."""
    assert explain({"properties": {"a": {"items": {}}, "p": schema}}, {"p": value}) == f"#/p: {text}"


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"const": 1}, 2, "2 is not the expected value 1"),
        ({"contains": {"type": "string"}}, [1], "expected at least one array item to match 'contains' schema"),
        ({"propertyNames": {"pattern": "^a"}}, {"b": 1}, "string [b] does not match pattern ^a"),
        ({"exclusiveMinimum": 5}, 5, "5 is not greater than 5"),
        (False, 1, "false schema always fails"),
    ],
)
def test_violations_of_later_drafts_have_the_text_of_the_contract(schema, value, text):
    """Reference schemas#violation-texts, schemas#drafts."""
    assert explain({**DRAFT_6, "properties": {"p": schema}}, {"p": value}) == f"#/p: {text}"


@pytest.mark.parametrize(
    ("schema", "value", "lines"),
    [
        (
            {"anyOf": [{"type": "string"}, {"required": ["x", "y"]}]},
            {},
            [
                "no subschema matched out of the total 2 subschemas",
                "expected type: String, found: JSONObject",
                "required key [x] not found",
                "required key [y] not found",
            ],
        ),
        (
            {"oneOf": [{"type": "string"}, {"minimum": 2}]},
            1,
            [
                "no subschema matched out of the total 2 subschemas",
                "expected type: String, found: Integer",
                "1 is not greater or equal to 2",
            ],
        ),
        (
            {"type": ["string", "null"]},
            1,
            [
                "no subschema matched out of the total 2 subschemas",
                "expected type: Null, found: Integer",
                "expected type: String, found: Integer",
            ],
        ),
    ],
)
def test_combined_schemas_are_followed_by_their_causes(schema, value, lines):
    """Reference schemas#violation-texts."""
    assert explain({"properties": {"p": schema}}, {"p": value}) == "\n".join(f"#/p: {line}" for line in lines)


@pytest.mark.parametrize(
    ("category", "event", "text"),
    [
        ("business", {}, "#: required key [metadata] not found"),
        (
            "data",
            {"data": {}},
            (
                "#: 3 schema violations found\n#: required key [metadata] not found\n"
                "#: required key [data_op] not found\n#: required key [data_type] not found"
            ),
        ),
        (
            "business",
            {"metadata": {**METADATA, "event_type": "x"}},
            "#/metadata/event_type: x is not a valid enum value",
        ),
        (
            "business",
            {"metadata": {**METADATA, "span_ctx": {"k": 1}}},
            "#/metadata/span_ctx/k: expected type: String, found: Integer",
        ),
        (
            "business",
            {"metadata": {**METADATA, "received_at": "x"}},
            "#/metadata: extraneous key [received_at] is not permitted: the broker sets it, leave it out",
        ),
        (
            "data",
            {"data": {}, "data_op": "C", "data_type": "x", "metadata": {**METADATA, "published_by": "x"}},
            "#/metadata: extraneous key [published_by] is not permitted: the broker sets it, leave it out",
        ),
        (
            "business",
            {"metadata": {**METADATA, "a": 1, "version": "1.0.0"}},
            (
                "#: 2 schema violations found\n#/metadata: extraneous key [a] is not permitted\n"
                "#/metadata: extraneous key [version] is not permitted: the broker sets it, leave it out"
            ),
        ),
        (
            "business",
            {"metadata": {**METADATA, "partition_compaction_key": "k"}},
            (
                "#/metadata: extraneous key [partition_compaction_key] is not permitted: it is for event types with "
                "cleanup_policy compact or compact_and_delete"
            ),
        ),
        (
            "business",
            {"metadata": {**METADATA, "a": 1, "b": 2}},
            (
                "#: 2 schema violations found\n#/metadata: extraneous key [a] is not permitted\n"
                "#/metadata: extraneous key [b] is not permitted"
            ),
        ),
    ],
)
def test_examples_of_the_contract(category, event, text):
    """Reference schemas#several-violations, schemas#metadata."""
    assert explain({}, event, category=category) == text


def test_metadata_declared_by_the_schema_are_not_replaced():
    schema = {"properties": {"metadata": {"additionalProperties": False}}}
    text = explain(schema, {"metadata": {"version": 1}}, category="undefined")
    assert text == "#/metadata: extraneous key [version] is not permitted"


def test_the_time_of_occurrence_is_checked_last():
    """Reference schemas#several-violations."""
    late = {**METADATA, "occurred_at": "yesterday"}
    message = "#/metadata/occurred_at:must be a valid date-time such as 2024-01-02T03:04:05.123Z"
    schema = {"properties": {"a": {"type": "string"}}}
    assert explain(schema, {"metadata": late}, category="business") == message
    assert explain(schema, {"metadata": late, "a": 1}, category="business") == (
        "#/a: expected type: String, found: Integer"
    )


def test_pointers_lead_through_arrays_and_objects():
    schema = {"properties": {"a": {"items": {"properties": {"b": {"type": "string"}}}}}}
    assert explain(schema, {"a": [{"b": "s"}, {"b": 1}]}) == "#/a/1/b: expected type: String, found: Integer"


def test_the_violations_inside_combined_schemas_count():
    schema = {"properties": {"p": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["q"]}
    assert explain(schema, {"p": 1}).splitlines()[0] == "#: 3 schema violations found"


def test_an_integer_may_be_written_as_a_double_from_draft_6_on():
    """Reference schemas#drafts."""
    assert validator({**DRAFT_6, "properties": {"p": {"type": "integer"}}}).is_valid({"p": 1.0})


def test_long_values_and_long_lists_are_truncated():
    """Reference schemas#several-violations."""
    schema = {"properties": {"p": {"enum": [1]}}, "additionalProperties": False}
    event = {"p": "x" * 10_000} | {f"q{n}": 1 for n in range(200)}
    lines = explain(schema, event).splitlines()
    assert lines[0] == "#: 201 schema violations found"
    assert len(lines) == VIOLATIONS_MAX + 2
    assert lines[-1] == "..."
    assert max(map(len, lines)) < TEXT_CHARACTERS_MAX + 100


def test_a_large_event_is_explained_by_its_first_violation():
    """Reference schemas#large-events."""
    text = explain({"properties": {"p": {"items": {"type": "string"}}}}, {"p": list(range(90_000))})
    assert text == "#/p/0: expected type: String, found: Integer"


def test_a_very_large_event_is_not_explained():
    """Reference schemas#large-events."""
    text = explain({"properties": {"p": {"items": {"type": "string"}}}}, {"p": list(range(100_000))})
    assert text == "#: the event does not match the schema, and is too large to say where"


def test_a_large_event_of_a_combined_schema_is_not_explained():
    """Reference schemas#large-events."""
    string = {"type": "string"}
    schema = {"properties": {"p": {"anyOf": [{"items": string}, {"items": {"items": string}}]}}}
    assert explain(schema, {"p": [*range(100_000), [1]]}) == (
        "#: the event does not match the schema, and is too large to say where"
    )


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 900_000 + "!", False),
        ({"format": "email"}, "a@" * 450_000, False),
        ({"format": "idn-email"}, "a@" * 450_000, False),
        ({"format": "date-time"}, "2" * 900_000, False),
        ({"uniqueItems": True}, [2**62 + 2**20 * n for n in range(45_000)], True),
        ({"uniqueItems": True}, [{"a": n} for n in range(100_000)], True),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_largest_values_are_validated_in_time(schema, value, valid):
    """Reference schemas#patterns."""
    # If the time grows faster than the size of the value, this takes longer than any test may.
    draft = "http://json-schema.org/draft-07/schema#"
    assert validator({"$schema": draft, "properties": {"p": schema}}).is_valid({"p": value}) == valid


def test_recursive_schemas_check_deep_events():
    schema = {"definitions": {"t": {"properties": {"x": {"$ref": "#/definitions/t"}, "y": {"type": "string"}}}}}
    checker = validator({**schema, "properties": {"t": {"$ref": "#/definitions/t"}}})
    event: dict = {"y": 1}
    for _ in range(60):
        event = {"x": event}
    assert checker.explain({"t": event}) == f"#/t{'/x' * 60}/y: expected type: String, found: Integer"


@settings(max_examples=length(80, 2_000))
@given(schemas, json_objects)
def test_every_invalid_event_can_be_explained(schema, event):
    try:
        checker = validator(schema)
    except Invalid:
        return
    if not checker.is_valid(event):
        assert checker.explain(event).startswith("#")


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ([], None),
        ([10, 10], (0, "No json_schema found for event type: order.created")),
        ([11, 10], (0, "Event too large: 11 bytes, max size is 10 bytes")),
    ],
)
def test_without_a_schema_the_first_event_is_invalid(sizes, error):
    assert NoJsonSchema("order.created").first_error([{}] * len(sizes), sizes, 10) == error
