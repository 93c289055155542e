import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.schemas.effective_schema import effective_schema
from rioni.domain.schemas.field_path import TooMuchToLookFor
from rioni.domain.schemas.path_check import ANY_ITEM, DEPTH_MAX, TYPES, PathFound, Standing, path_in


STRING = {"type": "string"}
A = {"properties": {"a": STRING}}
CLOSED = {**A, "additionalProperties": False}


def found(schema, *path, mode="forward", category="undefined", draft=7):
    text = json.dumps({"$schema": f"http://json-schema.org/draft-0{draft}/schema#", **schema})
    effective = effective_schema(text, name="e", category=category, compatibility_mode=mode, cleanup_policy="delete")
    return path_in(effective, path)


@pytest.mark.parametrize(
    ("schema", "path", "types"),
    [
        (A, "a", "string"),
        ({"properties": {"a": A}}, "a a", "string"),
        ({"properties": {"a": {}}}, "a", " ".join(sorted(TYPES))),
        ({"properties": {"a": {"type": "number"}}}, "a", "integer number"),
        ({"properties": {"a": {"type": "integer"}}}, "a", "integer"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "a", "string null"),
        ({"properties": {"a": {"enum": ["x", 1, None]}}}, "a", "string integer null"),
        ({"properties": {"a": {"const": 1.5}}}, "a", "number"),
        ({"properties": {"a": {"enum": [{"b": 1}]}}}, "a b", "integer"),
        ({"patternProperties": {"^x_": STRING}}, "x_1", "string"),
        ({"additionalProperties": STRING}, "anything", "string"),
        ({"definitions": {"d": A}, "properties": {"a": {"$ref": "#/definitions/d"}}}, "a a", "string"),
        ({"allOf": [A, {"properties": {"b": {"type": "null"}}}]}, "b", "null"),
        ({"anyOf": [A, {"properties": {"a": {"type": "null"}}}]}, "a", "string null"),
        ({"oneOf": [CLOSED, {"properties": {"b": STRING}, "additionalProperties": False}]}, "b", "string"),
        ({"if": A, "then": {"properties": {"b": STRING}, "additionalProperties": False}, "else": False}, "b", "string"),
        ({"properties": {"a": {"not": {"type": ["string", "null"]}}}}, "a", "boolean integer number array object"),
        ({"properties": {"a": {"items": A}}}, "a 0 a", "string"),
        ({"properties": {"a": {"items": A}}}, "a [] a", "string"),
        ({"properties": {"a": {"items": [STRING, {"type": "null"}]}}}, "a 1", "null"),
        ({"properties": {"a": {"items": [STRING], "additionalItems": A}}}, "a 7 a", "string"),
        ({"properties": {"a": {"$ref": "#"}}}, "a a a a", " ".join(sorted(TYPES))),
    ],
)
def test_a_declared_path_has_the_types_of_its_values(schema, path, types):
    """Reference schemas#paths."""
    segments = [ANY_ITEM if each == "[]" else int(each) if each.isdigit() else each for each in path.split()]
    answer = found(schema, *segments)
    assert answer.types == set(types.split())
    assert answer.standing is Standing.DECLARED


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (CLOSED, ["b"]),
        (A, ["a", "b"]),
        (A, ["a", 0]),
        ({"type": "object"}, [0]),
        ({"properties": {"a": False}}, ["a"]),
        ({"properties": {"a": {"type": "array", "maxItems": 2}}}, ["a", 2]),
        ({"properties": {"a": {"items": [STRING], "additionalItems": False}}}, ["a", 1]),
        ({"properties": {"a": {"items": False}}}, ["a", ANY_ITEM]),
        ({"properties": {"a": {"maxItems": 0}}}, ["a", ANY_ITEM]),
        ({"maxProperties": 0}, ["a"]),
        ({"propertyNames": {"pattern": "^x"}}, ["a"]),
        ({"propertyNames": {"enum": ["x"]}}, ["a"]),
        ({"propertyNames": False}, ["a"]),
        ({"patternProperties": {"^x": STRING}, "additionalProperties": False}, ["a"]),
        ({"not": {"required": ["a"]}}, ["a"]),
        ({"allOf": [A, {"properties": {"a": {"type": "null"}}}]}, ["a"]),
        ({"allOf": [CLOSED, {"properties": {"b": STRING}}]}, ["b"]),
        ({"anyOf": [CLOSED, {"properties": {"c": STRING}, "additionalProperties": False}]}, ["b"]),
        ({"if": {}, "then": CLOSED, "else": CLOSED}, ["b"]),
        ({"properties": {"a": {"enum": [{"b": 1}]}}}, ["a", "c"]),
        ({"properties": {"a": {"enum": []}}}, ["a"]),
    ],
)
def test_a_path_that_no_valid_event_has_is_excluded(schema, path):
    """Reference schemas#paths."""
    assert found(schema, *path).standing is Standing.EXCLUDED


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({}, ["a"]),
        (A, ["b"]),
        (A, ["b", "c"]),
        ({"anyOf": [CLOSED, {}]}, ["b"]),
        ({"properties": {"a": {"type": "array"}}}, ["a", 0]),
        ({"properties": {"a": {"type": ["array", "null"]}}}, ["a", ANY_ITEM, "b"]),
        ({"if": {}, "then": CLOSED}, ["b"]),
        ({"not": A}, ["b"]),
    ],
)
def test_a_path_that_nothing_names_and_nothing_forbids_is_undeclared(schema, path):
    """Reference schemas#paths."""
    assert found(schema, *path).standing is Standing.UNDECLARED


def test_the_compatibility_mode_and_the_category_count():
    assert found(A, "b", mode="compatible", draft=4).standing is Standing.EXCLUDED
    assert found(A, "b", mode="none").standing is Standing.EXCLUDED
    assert found(A, "data", "a", category="data") == PathFound(frozenset({"string"}), is_declared=True)
    assert found(A, "a", category="data").standing is Standing.EXCLUDED
    assert found(A, "metadata", "received_at", category="business").standing is Standing.DECLARED
    assert found(A, "metadata", "eid", category="business").types == {"string"}
    assert found(A, "metadata", "nonsense", category="business").standing is Standing.EXCLUDED
    assert found(A, "metadata", "version", "major", category="data").standing is Standing.EXCLUDED


def test_keywords_count_from_the_draft_on_that_has_them():
    schema = {"properties": {"a": {"const": 1}}, "propertyNames": False}
    assert found(schema, "a", draft=4).types == TYPES
    assert found(schema, "a", draft=6).standing is Standing.EXCLUDED


def test_the_names_that_are_declared_instead_are_known():
    assert found({"properties": {"total": STRING, "id": STRING}, "additionalProperties": False}, "totl").names == {
        "total",
        "id",
    }


def test_a_schema_that_is_too_entangled_is_refused():
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}]} for n in range(DEPTH_MAX + 1)}
    schema = {"definitions": {**chain, f"d{DEPTH_MAX + 1}": A}, "allOf": [{"$ref": "#/definitions/d0"}]}
    with pytest.raises(TooMuchToLookFor):
        found(schema, "a")


SCALARS = st.sampled_from([None, True, 1, 1.5, "x", [], [1], {}, {"a": 1}, {"b": {"a": None}}, {"a": ["x", {"b": 1}]}])
SCHEMAS = st.recursive(
    st.sampled_from([True, False, {}, {"type": "string"}, {"type": "integer"}, {"type": ["null", "object"]}])
    | st.builds(lambda value: {"enum": [value]}, SCALARS),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=1),
            "additionalProperties": inner,
            "items": inner | st.lists(inner, min_size=1, max_size=2),
            "additionalItems": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "if": inner,
            "then": inner,
            "propertyNames": st.sampled_from([True, {"pattern": "a"}, {"enum": ["b"]}]),
        },
    ),
    max_leaves=6,
)


@given(
    SCHEMAS.filter(lambda schema: isinstance(schema, dict)),
    SCALARS.filter(lambda value: isinstance(value, dict)),
)
def test_what_a_valid_event_has_is_never_excluded(schema, event):
    """Every path of an event that the schema accepts may have the type that its value has there."""
    effective = effective_schema(
        json.dumps({"$schema": "http://json-schema.org/draft-07/schema", **schema}),
        name="e",
        category="undefined",
        compatibility_mode="forward",
        cleanup_policy="delete",
    )
    if not effective.compile().is_valid(event):
        return
    for path, type_name in paths_of(event):
        assert type_name in path_in(effective, path).types


def paths_of(value, path=()):
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    yield path, names.get(type(value), "null")
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield from paths_of(inner, (*path, name))
    for index, inner in enumerate(value) if isinstance(value, list) else ():
        yield from paths_of(inner, (*path, index))
        yield from paths_of(inner, (*path, ANY_ITEM))
