import json
from typing import Any

import pytest

from rioni.domain.schemas.change import KINDS, Level
from rioni.domain.schemas.checks import check_schema
from rioni.domain.schemas.diff import _Comparison, compare
from rioni.domain.schemas.keywords import SchemaSide


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}

# The table of reference schemas#change-levels: kind, forward, compatible, message.
TABLE = {
    "ID_CHANGED": ("MAJOR", "MAJOR", "schema id must not change"),
    "TITLE_CHANGED": ("PATCH", "PATCH", "title changed"),
    "DESCRIPTION_CHANGED": ("PATCH", "PATCH", "description changed"),
    "PROPERTIES_ADDED": ("MINOR", "MINOR", "properties added"),
    "PROPERTY_REMOVED": ("MAJOR", "MAJOR", "schema properties cannot be removed"),
    "TYPE_CHANGED": ("MAJOR", "MAJOR", "schema types must be the same"),
    "TYPE_NARROWED": ("MINOR", "MAJOR", "schema types cannot be narrowed"),
    "REQUIRED_ARRAY_EXTENDED": ("MINOR", "MAJOR", "required array changed"),
    "REQUIRED_ARRAY_CHANGED": ("MAJOR", "MAJOR", "required array changed"),
    "ADDITIONAL_PROPERTIES_CHANGED": ("MAJOR", "MAJOR", "change not allowed"),
    "ADDITIONAL_PROPERTIES_NARROWED": ("MINOR", "MAJOR", "change not allowed"),
    "ADDITIONAL_ITEMS_CHANGED": ("MAJOR", "MAJOR", "change not allowed"),
    "ATTRIBUTE_VALUE_CHANGED": ("MAJOR", "MAJOR", "change to attribute value not allowed"),
    "ENUM_ARRAY_CHANGED": ("MAJOR", "MAJOR", "enum array changed"),
    "SUB_SCHEMA_CHANGED": ("MAJOR", "MAJOR", "sub schema changed"),
    "COMPOSITION_METHOD_CHANGED": ("MAJOR", "MAJOR", "schema composition method changed"),
    "NUMBER_OF_ITEMS_CHANGED": ("MAJOR", "MAJOR", "the number of schema items cannot be changed"),
    "DEPENDENCY_ARRAY_CHANGED": ("MAJOR", "MAJOR", "schema dependencies array cannot be changed"),
    "DEPENDENCY_SCHEMA_CHANGED": ("MAJOR", "MAJOR", "schema dependencies cannot be changed"),
    "DEPENDENCY_SCHEMA_REMOVED": ("MAJOR", "MAJOR", "dependency schema removed"),
    "SCHEMA_REMOVED": ("MAJOR", "MAJOR", "change not allowed"),
    "CONSTRAINT_ADDED": ("MINOR", "MAJOR", "constraints cannot be added"),
    "NOT_COMPARABLE": ("MAJOR", "MAJOR", "references are too entangled to be compared"),
}


@pytest.mark.parametrize("kind", sorted(TABLE.keys() | KINDS.keys()))
def test_every_kind_of_change_has_the_levels_and_the_message_of_the_contract(kind: str) -> None:
    forward, compatible, message = TABLE[kind]
    assert KINDS[kind] == (Level[forward], Level[compatible], message)


def props(**properties: Any) -> dict[str, Any]:
    return {"properties": properties}


def string(**keywords: Any) -> dict[str, Any]:
    return {"type": "string", **keywords}


def number(**keywords: Any) -> dict[str, Any]:
    return {"type": "number", **keywords}


def array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


def seven(**properties: Any) -> dict[str, Any]:
    return {**DRAFT_7, "properties": properties}


# Pairs of schemas, and all changes between them.
CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # Meta attributes.
    ({"id": "a"}, {"id": "b"}, "ID_CHANGED #/id"),
    ({**DRAFT_7, "$id": "a"}, DRAFT_7, "ID_CHANGED #/$id"),
    ({"title": "a"}, {"title": "b"}, "TITLE_CHANGED #/title"),
    ({}, {"description": "b"}, "DESCRIPTION_CHANGED #/description"),
    (props(a=string()), props(a=string(title="A")), "TITLE_CHANGED #/properties/a/title"),
    ({"definitions": {"a": STRING}}, {"definitions": {}, "default": {}}, ""),
    ({"x-owner": 1}, {"x-owner": 2}, ""),
    # Properties.
    (props(a=STRING), props(a=STRING, b=STRING), "PROPERTIES_ADDED #/properties"),
    (props(a=STRING, b=STRING), props(a=STRING), "PROPERTY_REMOVED #/properties/b"),
    (props(a=STRING), props(b=STRING), "PROPERTY_REMOVED #/properties/a"),
    (props(a=props()), props(a=props(b=STRING)), "PROPERTIES_ADDED #/properties/a/properties"),
    (props(**{"a/b~c": STRING}), props(**{"a/b~c": INTEGER}), "TYPE_CHANGED #/properties/a~1b~0c"),
    (props(title=STRING, id=STRING), props(title=INTEGER, id=STRING), "TYPE_CHANGED #/properties/title"),
    # Types.
    (props(a=STRING), props(a=INTEGER), "TYPE_CHANGED #/properties/a"),
    (props(a=STRING), props(a={"type": ["string", "null"]}), "TYPE_CHANGED #/properties/a"),
    (props(a=STRING), props(a={}), "TYPE_CHANGED #/properties/a"),
    (props(a=STRING), props(a={"enum": ["x"]}), "TYPE_CHANGED #/properties/a"),
    (props(a={}), props(a=STRING), "TYPE_NARROWED #/properties/a"),
    (
        props(a={"title": "A"}),
        props(a={"anyOf": [STRING]}),
        "TITLE_CHANGED #/properties/a/title, TYPE_NARROWED #/properties/a",
    ),
    ({}, props(), ""),
    ({}, {"type": "object"}, ""),
    ({}, {"required": ["a"]}, "REQUIRED_ARRAY_EXTENDED #/required"),
    (props(a={}), props(a=props()), ""),
    (props(a={}), props(a={"type": "object"}), "TYPE_NARROWED #/properties/a"),
    (props(a={"minLength": 1}), props(a={"minLength": 1, "minimum": 1}), "TYPE_CHANGED #/properties/a"),
    # Types that the original ignored.
    (props(a=INTEGER), props(a=NUMBER), "TYPE_CHANGED #/properties/a"),
    (props(a=NUMBER), props(a=INTEGER), "TYPE_NARROWED #/properties/a"),
    (props(a={"minLength": 1}), props(a=string(minLength=1)), "TYPE_NARROWED #/properties/a"),
    (props(a=string(minLength=1)), props(a={"minLength": 1}), "TYPE_CHANGED #/properties/a"),
    # Required.
    ({"required": ["a"]}, {"required": ["a", "b"]}, "REQUIRED_ARRAY_EXTENDED #/required"),
    ({"required": ["a", "b"]}, {"required": ["b", "a"]}, ""),
    ({"required": ["a", "b"]}, {"required": ["a"]}, "REQUIRED_ARRAY_CHANGED #/required"),
    ({"required": ["a"]}, {"required": ["b", "c"]}, "REQUIRED_ARRAY_CHANGED #/required"),
    # Undeclared properties and items.
    (props(), {**props(), "additionalProperties": True}, ""),
    (props(), {**props(), "additionalProperties": {}}, ""),
    (
        {"additionalProperties": True},
        {"additionalProperties": False},
        "ADDITIONAL_PROPERTIES_CHANGED #/additionalProperties",
    ),
    ({"additionalProperties": False}, props(), "ADDITIONAL_PROPERTIES_CHANGED #/additionalProperties"),
    (
        {"additionalProperties": False},
        {"additionalProperties": STRING},
        "ADDITIONAL_PROPERTIES_CHANGED #/additionalProperties",
    ),
    (
        {"additionalProperties": True},
        {"additionalProperties": NUMBER},
        "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties",
    ),
    (props(), {"additionalProperties": NUMBER}, "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"),
    ({"additionalProperties": NUMBER}, {"additionalProperties": True}, "SCHEMA_REMOVED #/additionalProperties"),
    ({"additionalProperties": NUMBER}, {"additionalProperties": STRING}, "TYPE_CHANGED #/additionalProperties"),
    (
        props(a=array(items=[STRING], additionalItems=False)),
        props(a=array(items=[STRING])),
        "ADDITIONAL_ITEMS_CHANGED #/properties/a/additionalItems",
    ),
    (
        props(a=array(items=[STRING], additionalItems=STRING)),
        props(a=array(items=[STRING])),
        "SCHEMA_REMOVED #/properties/a/additionalItems",
    ),
    # Items.
    (
        {"items": STRING},
        {"items": [STRING]},
        "NUMBER_OF_ITEMS_CHANGED #/, SCHEMA_REMOVED #/items",
    ),
    (props(a=array(items=STRING)), props(a=array()), "SCHEMA_REMOVED #/properties/a/items"),
    (props(a=array()), props(a=array(items=STRING)), "SCHEMA_REMOVED #/properties/a/items"),
    (props(a=array(items=STRING)), props(a=array(items=INTEGER)), "TYPE_CHANGED #/properties/a/items"),
    (props(a=array(items=[STRING])), props(a=array(items=[STRING, STRING])), "NUMBER_OF_ITEMS_CHANGED #/properties/a"),
    (props(a=array(items=[STRING])), props(a=array(items=[INTEGER])), "TYPE_CHANGED #/properties/a/items/0"),
    # Attributes: each difference, not just the first.
    *(
        (
            props(a={"type": kind, keyword: 1}),
            props(a={"type": kind, keyword: 2}),
            f"ATTRIBUTE_VALUE_CHANGED #/properties/a/{keyword}",
        )
        for kind, keywords in {
            "string": ("maxLength", "minLength"),
            "number": ("maximum", "minimum", "multipleOf"),
            "array": ("maxItems", "minItems"),
            "object": ("maxProperties", "minProperties"),
        }.items()
        for keyword in keywords
    ),
    (props(a=STRING), props(a=string(maxLength=1)), "ATTRIBUTE_VALUE_CHANGED #/properties/a/maxLength"),
    (props(a=string(pattern="a")), props(a=string(pattern="b")), "ATTRIBUTE_VALUE_CHANGED #/properties/a/pattern"),
    (props(a=array()), props(a=array(uniqueItems=True)), "ATTRIBUTE_VALUE_CHANGED #/properties/a/uniqueItems"),
    (
        props(a=number(minimum=1, maximum=9)),
        props(a=number(minimum=2, maximum=8)),
        "ATTRIBUTE_VALUE_CHANGED #/properties/a/maximum, ATTRIBUTE_VALUE_CHANGED #/properties/a/minimum",
    ),
    (props(a=string(minLength=0)), props(a=STRING), ""),
    (props(a=number(minimum=1)), props(a=number(minimum=1.0, exclusiveMinimum=False)), ""),
    (props(a=string(maximum=1)), props(a=string(maximum=2)), ""),
    # Attributes that the original ignored.
    (props(a=STRING), props(a=string(pattern="a")), "CONSTRAINT_ADDED #/properties/a/pattern"),
    (props(a=string(pattern="a")), props(a=STRING), "ATTRIBUTE_VALUE_CHANGED #/properties/a/pattern"),
    (props(a=STRING), props(a=string(format="date-time")), "CONSTRAINT_ADDED #/properties/a/format"),
    (props(a=string(format="email")), props(a=STRING), "ATTRIBUTE_VALUE_CHANGED #/properties/a/format"),
    (props(a=STRING), props(a=string(format="money")), ""),
    (props(a=STRING), props(a=string(format="date")), ""),
    (seven(a=STRING), seven(a=string(format="date")), "CONSTRAINT_ADDED #/properties/a/format"),
    (
        props(a=number(minimum=1)),
        props(a=number(minimum=1, exclusiveMinimum=True)),
        "CONSTRAINT_ADDED #/properties/a/exclusiveMinimum",
    ),
    (
        props(a=number(maximum=1, exclusiveMaximum=True)),
        props(a=number(maximum=1)),
        "ATTRIBUTE_VALUE_CHANGED #/properties/a/exclusiveMaximum",
    ),
    (seven(a=NUMBER), seven(a=number(exclusiveMaximum=1)), "CONSTRAINT_ADDED #/properties/a/exclusiveMaximum"),
    # Enumerations.
    ({"enum": ["red"]}, {"enum": ["blue"]}, "ENUM_ARRAY_CHANGED #/enum"),
    (props(a={"enum": ["x", 1]}), props(a={"enum": [1.0, "x"]}), ""),
    (props(a={"enum": ["x"]}), props(a={"enum": ["x", "y"]}), "ENUM_ARRAY_CHANGED #/properties/a/enum"),
    (props(a={"enum": ["x"]}), props(a=string(enum=["x"])), ""),
    (props(a={"enum": ["x", 1]}), props(a=string(enum=["x", 1])), "ENUM_ARRAY_CHANGED #/properties/a/enum"),
    (props(a=string(enum=["x"])), props(a=string(enum=["x"], pattern="y")), "CONSTRAINT_ADDED #/properties/a/pattern"),
    (seven(a={"const": 1}), seven(a={"const": 2}), "ENUM_ARRAY_CHANGED #/properties/a/const"),
    (props(a={"const": 1}), props(a={"const": 2}), ""),
    # Compositions.
    ({"anyOf": [STRING]}, {"anyOf": [STRING, INTEGER]}, "SUB_SCHEMA_CHANGED #/anyOf"),
    (
        props(a={"type": ["string", "null"]}),
        props(a={"type": ["string", "null", "integer"]}),
        "SUB_SCHEMA_CHANGED #/properties/a/type",
    ),
    (props(a={"type": ["string", "null"]}), props(a={"type": ["null", "string"]}), ""),
    (props(a={"type": ["string", "null"]}), props(a={"type": ["integer", "null"]}), "TYPE_CHANGED #/properties/a"),
    (props(a={"type": ["string"]}), props(a=STRING), ""),
    ({"anyOf": [props(), {}]}, {"allOf": [props(), {}]}, "COMPOSITION_METHOD_CHANGED #/"),
    ({"anyOf": [props(a=STRING)]}, {"oneOf": [props(a=STRING)]}, "COMPOSITION_METHOD_CHANGED #/"),
    ({"anyOf": [props()]}, {"anyOf": [props()], **props(a=STRING)}, "COMPOSITION_METHOD_CHANGED #/"),
    ({"anyOf": [props()], **props()}, {"anyOf": [props()], **props(a=STRING)}, "PROPERTIES_ADDED #/properties"),
    ({"oneOf": [props(), STRING]}, {"oneOf": [STRING, props(a=STRING)]}, "PROPERTIES_ADDED #/oneOf/1/properties"),
    ({"allOf": [STRING, INTEGER]}, {"allOf": [INTEGER, STRING]}, ""),
    # Mode compatible closes a schema as soon as it has a keyword that concerns only objects.
    (
        {"anyOf": [props()], "dependencies": {}},
        {"anyOf": [props()], "dependencies": {}, **props(a=STRING)},
        "COMPOSITION_METHOD_CHANGED #/",
    ),
    (
        {"minItems": 0, "dependencies": {}},
        {"minItems": 0, "dependencies": {}, **props(a=STRING)},
        "ADDITIONAL_PROPERTIES_NARROWED #/, PROPERTIES_ADDED #/properties",
    ),
    ({"minItems": 0}, {"minItems": 0, **props(a=STRING)}, "TYPE_CHANGED #/"),
    # Dependencies.
    (
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["c"]}},
        "DEPENDENCY_ARRAY_CHANGED #/dependencies/a",
    ),
    ({"dependencies": {"a": ["b"]}}, props(), "DEPENDENCY_ARRAY_CHANGED #/dependencies/a"),
    ({"dependencies": {"a": ["b", "c"]}}, {"dependencies": {"a": ["c", "b"]}}, ""),
    (props(), {"dependencies": {"a": ["b"]}}, "CONSTRAINT_ADDED #/dependencies/a"),
    (props(), {"dependencies": {"a": {}}}, "DEPENDENCY_SCHEMA_CHANGED #/dependencies/a"),
    ({"dependencies": {"a": {}}}, props(), "DEPENDENCY_SCHEMA_REMOVED #/dependencies/a"),
    (
        {"dependencies": {"a": props(b=STRING)}},
        {"dependencies": {"a": props(b=INTEGER)}},
        "TYPE_CHANGED #/dependencies/a/properties/b",
    ),
    # Keywords that the original ignored.
    (props(a=STRING), props(a=string(**{"not": {"enum": ["x"]}})), "CONSTRAINT_ADDED #/properties/a/not"),
    ({"not": props(), **props()}, props(), "SCHEMA_REMOVED #/not"),
    (
        {**props(), "not": props(a=STRING)},
        {**props(), "not": props(a=STRING, b=STRING)},
        "ATTRIBUTE_VALUE_CHANGED #/not/properties",
    ),
    ({**props(), "not": {"title": "a"}}, {**props(), "not": {"title": "b"}}, "TITLE_CHANGED #/not/title"),
    (
        {"patternProperties": {"^a/": STRING}},
        {"patternProperties": {"^a/": INTEGER, "^b": STRING}},
        "CONSTRAINT_ADDED #/patternProperties/^b, TYPE_CHANGED #/patternProperties/^a~1",
    ),
    ({"patternProperties": {"a": STRING}}, props(), "SCHEMA_REMOVED #/patternProperties/a"),
    (seven(a=array()), seven(a=array(contains=STRING)), "CONSTRAINT_ADDED #/properties/a/contains"),
    ({**DRAFT_7, "if": {}}, {**DRAFT_7, "if": {}, "then": props(a=STRING)}, "CONSTRAINT_ADDED #/then"),
    (seven(a=True), seven(a=False), "TYPE_NARROWED #/properties/a"),
    # References: differences behind them are reported where they are used.
    (
        {**props(a={"$ref": "#/definitions/d"}), "definitions": {"d": STRING}},
        {**props(a={"$ref": "#/definitions/e"}), "definitions": {"e": INTEGER}},
        "TYPE_CHANGED #/definitions/e",
    ),
    (
        {**props(a={"$ref": "#/definitions/d"}), "definitions": {"d": STRING}},
        props(a=STRING),
        "TYPE_CHANGED #/properties/a",
    ),
    (props(a={"$ref": "#"}), props(a={"$ref": "#"}, b=STRING), "PROPERTIES_ADDED #/properties"),
    (
        {**props(a={"$ref": "#/definitions/d"}, b={"$ref": "#/definitions/d"}), "definitions": {"d": props(n=STRING)}},
        {**props(a={"$ref": "#/definitions/d"}, b={"$ref": "#/definitions/d"}), "definitions": {"d": props(n=INTEGER)}},
        "TYPE_CHANGED #/definitions/d/properties/n",
    ),
]


@pytest.mark.parametrize(("original", "submitted", "changes"), CHANGES)
def test_every_change_is_found(original: dict[str, Any], submitted: dict[str, Any], changes: str) -> None:
    """Reference schemas#comparison, schemas#change-levels."""
    found = compare(json.dumps(original), json.dumps(submitted))
    assert {f"{change.kind} {change.path}" for change in found} == set(filter(None, changes.split(", ")))
    assert len(found) == len({(change.kind, change.path) for change in found})


def test_every_kind_of_change_occurs_among_the_examples() -> None:
    shown = {change.split()[0] for *_, changes in CHANGES for change in changes.split(", ") if change}
    assert shown | {"NOT_COMPARABLE"} == TABLE.keys()


def cycle(length: int) -> str:
    definitions = {f"d{i}": props(n={"$ref": f"#/definitions/d{(i + 1) % length}"}) for i in range(length)}
    return json.dumps({**props(a={"$ref": "#/definitions/d0"}), "definitions": definitions})


def test_the_comparison_of_entangled_references_ends_after_few_pairs() -> None:
    """Reference schemas#comparison: however small the definitions."""
    original, submitted = cycle(2000), cycle(1999)
    check_schema(original, name="a", category="undefined", compatibility_mode="forward")
    comparison = _Comparison(SchemaSide(original), SchemaSide(submitted))
    assert [change.kind for change in comparison.run()] == ["NOT_COMPARABLE"]
    assert len(comparison.followed) < 10_000


def test_all_small_definitions_of_a_large_schema_are_compared() -> None:
    """A schema of 256 kB may contain this many definitions, each with a reference to it."""

    def schema(last: dict[str, Any]) -> str:
        names = [f"{number:x}" for number in range(4_400)]
        definitions = dict.fromkeys(names, STRING) | {names[-1]: last}
        references = {name: {"$ref": f"#/definitions/{name}"} for name in names}
        return json.dumps({"properties": references, "definitions": definitions}, separators=(",", ":"))

    assert 250_000 < len(schema(STRING)) < 262_144
    assert compare(schema(STRING), schema(STRING)) == []
    assert [change.kind for change in compare(schema(STRING), schema(INTEGER))] == ["TYPE_CHANGED"]


def test_equivalent_cycles_of_different_lengths_are_no_change() -> None:
    assert compare(cycle(2), cycle(3)) == []


def test_pointers_stay_short_even_for_long_names_of_properties() -> None:
    original: dict[str, Any] = props(**{"a" * 50_000: props(**{f"p{i}": STRING for i in range(1000)})})
    submitted = props(**{"a" * 50_000: props(**{f"p{i}": INTEGER for i in range(1000)})})
    changes = compare(json.dumps(original), json.dumps(submitted))
    assert len(changes) == 1000
    assert all(len(change.path) < 1100 for change in changes)
