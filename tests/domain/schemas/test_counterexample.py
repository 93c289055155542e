"""Changes that mode compatible rejects can break some event, and changes that it accepts break none.

Source: reference schemas#change-levels.

The library decides which values one schema accepts and another rejects. That may take for ever and is no choice for a
broker; for schemas as small as these it serves as the reference.
"""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema_rs.canonical import Satisfiability

from rioni.domain.errors import Invalid
from rioni.domain.schemas.change import KINDS, Level
from rioni.domain.schemas.counterexample import SCHEMA_CHARACTERS_MAX, breaking_example
from rioni.domain.schemas.diff import compare
from rioni.domain.schemas.effective_schema import EffectiveSchema, effective_schema
from rioni.domain.schemas.evolution import evolve_schema
from tests.domain.schemas.test_diff import INTEGER, NUMBER, STRING, array, number, props, string
from tests.domain.schemas.test_evolution import changed_schemas, values
from tests.support.campaigns import length


ILLUSTRATION = "; for example this event was valid and would be refused: "
Schema = dict[str, Any]

# One example of each kind of change that breaks an event.
BREAKING: list[tuple[str, Schema, Schema]] = [
    ("PROPERTY_REMOVED", props(a=STRING, b=STRING), props(a=STRING)),
    ("TYPE_CHANGED", props(a=STRING), props(a=INTEGER)),
    ("TYPE_CHANGED", props(a={"minLength": 1}), props(a={"minLength": 1, "minimum": 1})),
    ("TYPE_NARROWED", props(a=NUMBER), props(a=INTEGER)),
    ("TYPE_NARROWED", props(a={}, b={}, c={}), props(a={}, b={}, c={"minItems": 2})),
    ("TYPE_NARROWED", props(a={}), props(a={"multipleOf": 0.5})),
    ("REQUIRED_ARRAY_EXTENDED", props(a=STRING, b=STRING), {**props(a=STRING, b=STRING), "required": ["b"]}),
    (
        "REQUIRED_ARRAY_CHANGED",
        {**props(a=STRING, b=STRING), "required": ["a"]},
        {**props(a=STRING, b=STRING), "required": ["b"]},
    ),
    (
        "ADDITIONAL_PROPERTIES_NARROWED",
        {"minItems": 0, "dependencies": {}},
        {"minItems": 0, "dependencies": {}, **props(a=STRING)},
    ),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=string(maxLength=5)), props(a=string(maxLength=3))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=STRING), props(a=string(minLength=1))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=string(pattern="^a")), props(a=string(pattern="^b"))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=string(format="email")), props(a=string(format="ipv4"))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=number(maximum=9)), props(a=number(maximum=8))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=number(minimum=-9)), props(a=number(minimum=-8))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=number(multipleOf=2)), props(a=number(multipleOf=4))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=array(maxItems=3)), props(a=array(maxItems=2))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=array(minItems=3)), props(a=array(minItems=4))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=array()), props(a=array(uniqueItems=True))),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=STRING, b=STRING), {**props(a=STRING, b=STRING), "maxProperties": 1}),
    ("ATTRIBUTE_VALUE_CHANGED", props(a=STRING, b=STRING), {**props(a=STRING, b=STRING), "minProperties": 1}),
    ("CONSTRAINT_ADDED", props(a=STRING), props(a=string(pattern="^a$"))),
    ("CONSTRAINT_ADDED", props(a=STRING), props(a=string(format="date-time"))),
    ("CONSTRAINT_ADDED", props(a=number(maximum=1)), props(a=number(maximum=1, exclusiveMaximum=True))),
    ("CONSTRAINT_ADDED", props(a=STRING, b=STRING), {**props(a=STRING, b=STRING), "dependencies": {"a": ["b"]}}),
    ("ENUM_ARRAY_CHANGED", props(a={"enum": ["x", "y"]}), props(a={"enum": ["x"]})),
    ("SUB_SCHEMA_CHANGED", props(a={"type": ["string", "null", "integer"]}), props(a={"type": ["string", "null"]})),
    ("SUB_SCHEMA_CHANGED", props(a={"anyOf": [STRING, INTEGER]}), props(a={"anyOf": [STRING]})),
    ("SUB_SCHEMA_CHANGED", props(a={"oneOf": [STRING, NUMBER]}), props(a={"oneOf": [STRING, NUMBER, INTEGER]})),
    ("COMPOSITION_METHOD_CHANGED", props(a={"anyOf": [STRING, INTEGER]}), props(a={"allOf": [STRING, INTEGER]})),
    ("COMPOSITION_METHOD_CHANGED", props(a={"anyOf": [NUMBER, INTEGER]}), props(a={"oneOf": [NUMBER, INTEGER]})),
    ("NUMBER_OF_ITEMS_CHANGED", props(a=array(items=[STRING, STRING])), props(a=array(items=[STRING]))),
    ("SCHEMA_REMOVED", props(a=array()), props(a=array(items=INTEGER))),
    (
        "DEPENDENCY_ARRAY_CHANGED",
        {**props(a=STRING, b=STRING, c=STRING), "dependencies": {"a": ["b"]}},
        {**props(a=STRING, b=STRING, c=STRING), "dependencies": {"a": ["c"]}},
    ),
    (
        "DEPENDENCY_SCHEMA_CHANGED",
        props(a=STRING, b=STRING),
        {**props(a=STRING, b=STRING), "dependencies": {"a": {**props(a=STRING, b=STRING), "required": ["b"]}}},
    ),
    (
        "DEPENDENCY_SCHEMA_REMOVED",
        {**props(a=STRING, b=STRING), "dependencies": {"a": props(a=STRING, b=STRING)}},
        {**props(a=STRING, b=STRING), "dependencies": {"a": ["b"]}},
    ),
]

HARMLESS = {
    "ID_CHANGED": "says nothing about events",
    "NOT_COMPARABLE": "it is unknown what differs",
    "ADDITIONAL_PROPERTIES_CHANGED": "the keyword does not exist in mode compatible",
    "ADDITIONAL_ITEMS_CHANGED": "the keyword does not exist in mode compatible",
}
"""Kinds of changes that mode compatible rejects although no event breaks, or none can be determined."""


def effective(schema: Schema) -> EffectiveSchema:
    return effective_schema(
        json.dumps(schema), name="a", category="undefined", compatibility_mode="compatible", cleanup_policy="delete"
    )


def refusal(original: Schema, submitted: Schema) -> str | None:
    """The detail of the problem for a change in mode compatible; None if it is accepted."""
    texts = {"original": json.dumps(original), "submitted": json.dumps(submitted)}
    try:
        evolve_schema(**texts, original_mode="compatible", submitted_mode="compatible", version="1.0.0")
    except Invalid as ex:
        return str(ex)
    return None


def breaks(original: Schema, submitted: Schema) -> bool:
    """Whether some event that is valid by the first schema is invalid by the second; False also if that is unknown."""
    if '"#"' in json.dumps((original, submitted)):
        return False  # The library does not compare references to the whole of two documents.
    old, new = (
        jsonschema_rs.canonicalize(
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "definitions": document.pop("definitions", {}),
                "allOf": [document, {"type": "object"}],
            }
        )
        for document in (without_unknown_formats(effective(schema).document) for schema in (original, submitted))
    )
    return old.subtract(new).satisfiability() is Satisfiability.YES


def without_unknown_formats(schema: Mapping[str, Any]) -> Schema:
    """An equivalent schema for every event; the library can't subtract formats that it does not know."""

    def known(node: Schema) -> Schema:
        return {keyword: value for keyword, value in node.items() if (keyword, value) != ("format", "unknown")}

    document: Schema = json.loads(json.dumps(schema), object_hook=known)
    return document


def check_illustration(original: Schema, submitted: Schema, detail: str) -> None:
    event = json.loads(detail.partition(ILLUSTRATION)[2].partition(". What to do: ")[0])
    assert isinstance(event, dict)
    assert effective(original).compile().is_valid(event)
    assert not effective(submitted).compile().is_valid(event)


@pytest.mark.parametrize(("kind", "original", "submitted"), BREAKING)
def test_a_rejection_of_every_kind_shows_an_event_that_would_become_invalid(
    kind: str, original: Schema, submitted: Schema
) -> None:
    changes = compare(json.dumps(original), json.dumps(submitted))
    assert kind in {change.kind for change in changes if change.level_compatible is Level.MAJOR}
    detail = refusal(original, submitted)
    assert detail is not None
    check_illustration(original, submitted, detail)


def test_every_rejected_kind_of_change_is_listed_as_breaking_or_not() -> None:
    refused = {kind for kind, (_, compatible, _) in KINDS.items() if compatible is Level.MAJOR}
    assert {kind for kind, *_ in BREAKING} | HARMLESS.keys() == refused
    assert not {kind for kind, *_ in BREAKING} & HARMLESS.keys()


def test_an_unchecked_format_breaks_nothing() -> None:
    original, submitted = {}, props(a={"format": "unknown"})
    assert refusal(original, submitted) is None
    assert not breaks(original, submitted)


@settings(max_examples=length(100, 3_000), derandomize=True)
@given(changed_schemas())
def test_a_rejection_shows_an_event_whenever_one_would_break(schemas: tuple[Schema, Schema]) -> None:
    """The search for one has a budget, so that it might fail: these are always the same schemas."""
    detail = refusal(*schemas)
    assume(detail is not None)
    assert detail is not None
    if ILLUSTRATION in detail:
        check_illustration(*schemas, detail)
    else:
        assert not breaks(*schemas)


@settings(max_examples=length(80, 2_000))
@given(st.data(), changed_schemas())
def test_valid_events_remain_valid_after_accepted_changes(data: st.DataObject, schemas: tuple[Schema, Schema]) -> None:
    """`oneOf` is left out: a wider branch may match together with another one, which the search need not find."""
    assume(refusal(*schemas) is None)
    texts = map(json.dumps, schemas)
    assert breaking_example(*texts, original_mode="compatible", submitted_mode="compatible") is None
    assert not breaks(*schemas)
    old, new = (effective(schema).compile() for schema in schemas)
    for _ in range(5):
        event = data.draw(values(schemas[0], schemas[0]))
        if isinstance(event, dict) and old.is_valid(event):
            assert new.is_valid(event), event


def _alternatives(*names: tuple[str, ...]) -> Schema:
    return props(a={"oneOf": [props(**dict.fromkeys(each, STRING)) for each in names]})


DRAFT_7: Schema = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": True}}


@pytest.mark.parametrize(
    ("original", "submitted"),
    [
        (_alternatives(("a",), ("b",)), _alternatives(("a", "b"), ("b",))),
        (_alternatives(("a",), ("b",), ("c",)), _alternatives(("a",), ("b", "c"), ("c",))),
        ({"oneOf": [props(a=STRING), props(b=STRING)]}, {"oneOf": [props(a=STRING), props(b=STRING, a=STRING)]}),
        (DRAFT_7 | props(a=True), DRAFT_7 | props(a={})),
        (DRAFT_7 | props(a=array(items=True)), DRAFT_7 | props(a=array(items={}))),
        (DRAFT_7 | props(a={"anyOf": [True]}), DRAFT_7 | props(a={"anyOf": [{}]})),
        (DRAFT_7 | props(a={"$ref": "#/definitions/a"}), DRAFT_7 | props(a={"$ref": "#/definitions/b"})),
    ],
)
def test_a_change_that_breaks_an_event_is_refused_in_mode_compatible_whatever_the_table_says(
    original: Schema, submitted: Schema
) -> None:
    """Reference schemas#accepted-changes."""
    submitted = submitted if "$schema" not in submitted else submitted | {"definitions": {"b": {}}}
    detail = refusal(original, submitted)
    assert detail is not None
    check_illustration(original, submitted, detail)


def test_a_property_that_tells_no_alternatives_apart_may_be_added() -> None:
    """Reference schemas#accepted-changes."""
    before, after = (
        props(a={"oneOf": [props(x=STRING, **more) | {"required": ["x"]}, props(y=STRING) | {"required": ["y"]}]})
        for more in ({}, {"z": STRING})
    )
    assert refusal(before, after) is None


# --- the examples themselves ---


def example(original: Schema, submitted: Schema, mode: str = "forward") -> Schema | None:
    return breaking_example(json.dumps(original), json.dumps(submitted), original_mode=mode, submitted_mode=mode)


@pytest.mark.parametrize(
    ("original", "submitted", "event"),
    [
        (props(a=STRING), props(a=INTEGER), {"a": "text"}),
        (props(a=NUMBER), props(a=INTEGER), {"a": 0.5}),
        (props(a=STRING), {**props(a=STRING), "required": ["a"]}, {}),
        (props(a=string(maxLength=9)), props(a=string(maxLength=5)), {"a": "xxxxxx"}),
        (props(a=number(minimum=3)), props(a=number(minimum=10)), {"a": 3}),
        (props(a={"enum": ["x", "y"]}), props(a={"enum": ["x"]}), {"a": "y"}),
        (props(a=array(items=STRING)), props(a=array(items=INTEGER)), {"a": ["text"]}),
        (props(a=array(items=STRING)), props(a=array(items=STRING, maxItems=1)), {"a": ["text", "x"]}),
        (props(a=string(format="date-time")), props(a=INTEGER), {"a": "2024-01-02T03:04:05Z"}),
        (
            {
                **props(a=STRING, b=props(c={"$ref": "#/definitions/d"})),
                "required": ["a"],
                "definitions": {"d": STRING},
            },
            {
                **props(a=STRING, b=props(c={"$ref": "#/definitions/d"})),
                "required": ["a"],
                "definitions": {"d": INTEGER},
            },
            {"a": "text", "b": {"c": "text"}},
        ),
    ],
)
def test_the_example_contains_the_difference(original: Any, submitted: Any, event: Schema) -> None:
    assert example(original, submitted) == event


def test_objects_are_closed_as_the_mode_requires() -> None:
    assert example(props(a=STRING, b=STRING), props(a=STRING), "forward") is None
    assert example(props(a=STRING, b=STRING), props(a=STRING), "compatible") == {"b": "text"}


def test_infinitely_recursive_schemas_have_no_example() -> None:
    names = [f"p{index}" for index in range(20)]
    original = {"type": "object", **props(**{name: {"$ref": "#"} for name in names}), "required": names}
    assert example(original, {**original, "minProperties": 30}) is None


def test_large_schemas_have_no_example() -> None:
    large = {"description": "a" * SCHEMA_CHARACTERS_MAX}
    assert example({**props(a=STRING), **large}, {**props(a=INTEGER), **large}) is None
