"""Differences of the drafts of JSON Schema: for events, and for changes of a schema from one draft to another."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.domain.schemas.change import Level
from rioni.domain.schemas.checks import check_schema
from rioni.domain.schemas.counterexample import breaking_example
from rioni.domain.schemas.diff import compare
from rioni.domain.schemas.evolution import evolve_schema


DRAFTS = (4, 6, 7)
PAGE = (Path(__file__).parents[3] / "docs/reference/schemas.md").read_text()
WRONG = "\u0000 not {any [ of \\ them"


def documented():
    """Formats with the draft that begins to check each, of the table in reference schemas#formats."""
    table = PAGE.split("### Formats")[1].split("### Date-time")[0]
    for line in re.findall(r"^\| (`.*) \| (always|from draft \d) \|$", table, re.MULTILINE):
        since = 4 if line[1] == "always" else int(line[1][-1])
        yield from ((name, since) for name in re.findall(r"`([^`]+)`", line[0]))


FORMATS = dict(documented())
OTHERS = [
    "uuid",
    "duration",
    "int32",
    "int64",
    "byte",
    "color",
    "phone",
    "host-name",
    "ip-address",
    "unix-time",
    "DATE",
]


def text(schema, draft):
    return json.dumps({"$schema": f"http://json-schema.org/draft-0{draft}/schema#", **schema})


def checked(schema, draft):
    return check_schema(text(schema, draft), name="e", category="undefined", compatibility_mode="forward")


def accepts(schema, draft, event):
    return checked(schema, draft).compile().is_valid(event)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("name", [*FORMATS, *OTHERS])
def test_a_format_is_checked_in_the_drafts_that_have_it_and_in_no_others(name, draft):
    """Reference schemas#formats."""
    assert accepts({"properties": {"a": {"format": name}}}, draft, {"a": WRONG}) == (draft < FORMATS.get(name, 8))


def test_the_table_of_formats_is_read():
    assert FORMATS["date-time"] == 4
    assert FORMATS["json-pointer"] == 6
    assert FORMATS["date"] == FORMATS["time"] == FORMATS["regex"] == FORMATS["idn-email"] == 7


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("keywords", "value", "since"),
    [
        ({"const": 1}, 2, 6),
        ({"contains": {"type": "string"}}, [1], 6),
        ({"propertyNames": {"pattern": "^a"}}, {"b": 1}, 6),
        ({"contentEncoding": "base64"}, "%", 6),
        ({"contentMediaType": "application/json"}, "{", 6),
        ({"if": {}, "then": {"type": "string"}}, 1, 7),
        ({"if": {"type": "string"}, "else": {"type": "null"}}, 1, 7),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}, 4),
        ({"items": [{}], "additionalItems": False}, [1, 2], 4),
        ({"$ref": "#/definitions/any", "type": "string"}, 1, 8),
        ({"minContains": 2, "prefixItems": [{"type": "null"}]}, [1], 8),
        ({"dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False}, {"a": 1}, 8),
    ],
)
def test_a_keyword_is_checked_in_the_drafts_that_have_it(keywords, value, since, draft):
    """Reference schemas#drafts."""
    schema = {"definitions": {"any": {}}, "properties": {"a": keywords}}
    assert accepts(schema, draft, {"a": value}) == (draft < since)


CHANGES = [
    # A schema in draft 7, the same in draft 4, and an event that only the first one accepts.
    ({"properties": {"a": {"type": "integer"}}}, {"a": 1.0}),
    ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": 1.0}),
    ({"properties": {"a": {"type": "integer", "enum": [1, 2]}}}, {"a": 1.0}),
    ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": [1.0]}),
    ({"additionalProperties": {"type": "integer"}}, {"a": 1.0}),
    ({"patternProperties": {"^a": {"type": "integer"}}}, {"a": 1.0}),
    ({"definitions": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/definitions/n"}}}, {"a": 1.0}),
    ({"allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": 1.0}),
    ({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}, {"a": 1.0}),
    ({"dependencies": {"a": {"properties": {"a": {"type": "integer"}}}}}, {"a": 1.0}),
]


@pytest.mark.parametrize(("schema", "event"), CHANGES)
def test_a_draft_without_integers_that_have_a_point_narrows(schema, event):
    """Reference schemas#drafts."""
    assert accepts(schema, 7, event)
    assert not accepts(schema, 4, event)
    with pytest.raises(Invalid, match="schema types cannot be narrowed"):
        evolve(schema, 7, 4, mode="compatible")
    assert evolve(schema, 7, 4, mode="forward") == "2.0.0"
    assert evolve(schema, 4, 7, mode="compatible") == "1.0.1"


def evolve(schema, old, new, *, mode):
    return evolve_schema(
        original=text(schema, old),
        submitted=text(schema, new),
        original_mode=mode,
        submitted_mode=mode,
        version="1.0.0",
    )


def test_the_refusal_shows_an_integer_with_a_point():
    schema = {"properties": {"a": {"type": "integer"}}}
    assert breaking_example(text(schema, 7), text(schema, 4)) == {"a": 1.0}


def test_where_widening_narrows_a_newer_draft_counts_as_well():
    alternatives = {"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}
    excluded = {"properties": {"a": {"not": {"type": "integer"}}}}
    for schema in (alternatives, excluded):
        assert accepts(schema, 4, {"a": 1.0})
        assert not accepts(schema, 7, {"a": 1.0})
        assert max(change.level_compatible for change in compare(text(schema, 4), text(schema, 7))) is Level.MAJOR


LEAVES = st.sampled_from(
    [
        {},
        {"type": "integer"},
        {"type": "number"},
        {"type": ["integer", "string"]},
        {"type": "string"},
        {"enum": [1, "x"]},
        {"enum": [1.0], "type": "integer"},
        {"const": 1},
        {"format": "date"},
        {"format": "uri-reference"},
        {"format": "email"},
        {"contentEncoding": "base64"},
        {"contains": {"type": "integer"}},
        {"propertyNames": {"pattern": "^a"}},
        {"if": {"type": "integer"}, "then": {"enum": [1]}},
        {"if": {"type": "string"}, "else": {"type": "integer"}},
        {"minimum": 1},
    ]
)
NODES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda node: {"properties": {"a": node}}, inner),
        st.builds(lambda node: {"items": node}, inner),
        st.builds(lambda node: {"not": node}, inner),
        st.builds(lambda node: {"dependencies": {"a": node}}, inner),
        st.builds(
            lambda method, nodes: {method: nodes},
            st.sampled_from(["allOf", "anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=2),
        ),
        st.builds(lambda node: {"if": node, "then": {"enum": [1]}}, inner),
    ),
    max_leaves=4,
)
VALUES = [1, 1.0, 1.5, 2.0, "x", "", "%", None, True, [], [1], [1.0], ["x"], {}, {"a": 1.0}, {"a": "x"}, {"b": 1.0}]


@given(NODES, st.permutations(DRAFTS))
def test_a_change_of_draft_is_compatible_only_if_nothing_that_was_valid_becomes_invalid(node, drafts):
    """Reference schemas#drafts."""
    old, new = drafts[:2]
    schema = {"properties": {"a": node}}
    before, after = (checked(schema, draft).compile().is_valid for draft in (old, new))
    if any(before({"a": value}) and not after({"a": value}) for value in VALUES):
        changes = compare(text(schema, old), text(schema, new))
        assert max((change.level_compatible for change in changes), default=Level.PATCH) is Level.MAJOR
