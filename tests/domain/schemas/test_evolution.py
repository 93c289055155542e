import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.domain.schemas.change import Level
from rioni.domain.schemas.checks import check_schema
from rioni.domain.schemas.counterexample import breaking_example
from rioni.domain.schemas.diff import compare
from rioni.domain.schemas.evolution import CHANGES_NAMED_MAX, evolve_schema, next_schema_version
from rioni.domain.schemas.walker import resolve, walk
from tests.domain.schemas.test_diff import CHANGES, INTEGER, STRING, TABLE, props, string


def evolve(original: dict[str, Any], submitted: dict[str, Any], modes: str, version: str = "1.2.3") -> str | None:
    before, _, after = modes.partition(" -> ")
    return evolve_schema(
        original=json.dumps(original),
        submitted=json.dumps(submitted),
        original_mode=before,
        submitted_mode=after or before,
        version=version,
    )


@pytest.mark.parametrize(
    ("level", "version"),
    [
        (Level.NO_CHANGES, "9.10.11"),
        (Level.PATCH, "9.10.12"),
        (Level.MINOR, "9.11.0"),
        (Level.MAJOR, "10.0.0"),
    ],
)
def test_versions_are_incremented(level: Level, version: str) -> None:
    """Reference schemas#versions."""
    assert next_schema_version("9.10.11", level) == version


@pytest.mark.parametrize("mode", ["none", "forward", "compatible"])
def test_an_identical_text_is_no_new_version(mode: str) -> None:
    """Reference schemas#versions."""
    assert evolve(props(a=STRING), props(a=STRING), mode) is None


@pytest.mark.parametrize("mode", ["none", "forward", "compatible", "forward -> compatible"])
@pytest.mark.parametrize(
    "submitted",
    [
        props(b=STRING, a=STRING),
        {**props(a=STRING, b=STRING), "definitions": {"unused": STRING}},
        {**props(a=STRING, b=STRING), "default": {}},
        {**props(a=STRING, b=STRING), "title": "A"},
    ],
)
def test_an_equivalent_text_is_a_patch_version(submitted: dict[str, Any], mode: str) -> None:
    """Reference schemas#versions, schemas#comparison."""
    assert evolve(props(a=STRING, b=STRING), submitted, mode) == "1.2.4"


@pytest.mark.parametrize("mode", ["none", "forward", "compatible", "forward -> compatible"])
def test_a_new_optional_property_is_a_minor_version(mode: str) -> None:
    assert evolve(props(a=STRING), props(a=STRING, b=STRING), mode) == "1.3.0"


@pytest.mark.parametrize("mode", ["none", "forward", "forward -> compatible"])
def test_a_new_required_property_is_forward_compatible_and_a_major_version(mode: str) -> None:
    assert evolve({"required": ["a"]}, {"required": ["a", "b"]}, mode) == "2.0.0"


@pytest.mark.parametrize(("original", "submitted", "changes"), CHANGES)
def test_each_mode_rejects_its_major_changes(original: dict[str, Any], submitted: dict[str, Any], changes: str) -> None:
    """Reference schemas#accepted-changes."""
    kinds = [change.split()[0] for change in changes.split(", ") if change]
    for mode, column in (("forward", 0), ("compatible", 1)):
        refused = any(TABLE[kind][column] == "MAJOR" for kind in kinds)
        assert refused == _is_rejected(original, submitted, mode)
    assert not _is_rejected(original, submitted, "none")
    assert not _is_rejected(original, submitted, "none -> compatible")
    upgrade = {
        "DESCRIPTION_CHANGED",
        "TITLE_CHANGED",
        "PROPERTIES_ADDED",
        "REQUIRED_ARRAY_EXTENDED",
        "ADDITIONAL_PROPERTIES_CHANGED",
        "ADDITIONAL_ITEMS_CHANGED",
    }
    assert _is_rejected(original, submitted, "forward -> compatible") == (not upgrade.issuperset(kinds))


def _is_rejected(original: dict[str, Any], submitted: dict[str, Any], modes: str) -> bool:
    try:
        evolve(original, submitted, modes)
    except Invalid:
        return True
    return False


@pytest.mark.parametrize("mode", ["forward", "none"])
@pytest.mark.parametrize(("original", "submitted", "changes"), CHANGES)
def test_changes_forbidden_in_mode_compatible_are_major_versions(
    original: dict[str, Any], submitted: dict[str, Any], changes: str, mode: str
) -> None:
    if not _is_rejected(original, submitted, mode):
        is_major = _is_rejected(original, submitted, "compatible")
        assert (evolve(original, submitted, mode) == "2.0.0") == is_major


def test_a_relaxed_mode_does_not_relax_the_change_that_comes_with_it() -> None:
    """Reference schemas#accepted-changes."""
    with pytest.raises(Invalid):
        evolve(props(a=STRING), props(a=INTEGER), "compatible -> none")


def test_a_rejection_names_exactly_the_rejected_changes() -> None:
    """Reference schemas#refused-changes."""
    original = {**props(foo=STRING, bar=STRING), "required": ["foo", "bar"], "title": "a"}
    submitted = {**props(foo=INTEGER, bar=STRING, baz=STRING), "required": ["foo"], "title": "b"}
    with pytest.raises(Invalid) as error:
        evolve(original, submitted, "forward")
    assert str(error.value).partition(";")[0] == (
        "Invalid schema: #/properties/foo: schema types must be the same, #/required: required array changed"
    )


def test_a_rejection_shows_an_event_that_would_break() -> None:
    """Reference schemas#refused-changes."""
    with pytest.raises(Invalid) as error:
        evolve(props(foo=STRING), props(foo=INTEGER), "forward")
    assert '; for example this event was valid and would be refused: {"foo":"text"}. What to do: ' in str(error.value)


def test_a_rejection_shows_no_event_if_none_would_break() -> None:
    with pytest.raises(Invalid) as error:
        evolve({"required": ["a"]}, {"required": []}, "forward")
    assert str(error.value).startswith("Invalid schema: #/required: required array changed. What to do: ")


@pytest.mark.parametrize(
    ("original", "submitted", "advice"),
    [
        (props(a={"enum": ["x"]}), props(a={"enum": ["x", "y"]}), '{"type": "string", "x-extensible-enum": [...]}'),
        (props(a=STRING, b=STRING), props(a=STRING), "keep the property and stop sending it"),
        (props(a=INTEGER), props(a={"type": "number"}), "add a property of the new type beside the old one"),
        (props(a={"pattern": "x"}), props(a={"pattern": "y"}), "compatibility_mode to none (PUT)"),
    ],
)
@pytest.mark.parametrize("mode", ["forward", "compatible"])
def test_a_rejection_says_what_to_do(original: Any, submitted: Any, advice: str, mode: str) -> None:
    """Reference schemas#refused-changes."""
    with pytest.raises(Invalid) as error:
        evolve(original, submitted, mode)
    said = str(error.value).split(". What to do: ")[1]
    assert advice in said
    assert said.endswith("and sets the mode back; or publish to a new event type")


def test_values_of_an_extensible_enum_are_added_in_mode_forward() -> None:
    """Reference schemas#breaking-changes."""
    before, after = (props(a={"type": "string", "x-extensible-enum": values}) for values in (["x"], ["x", "y"]))
    assert evolve(before, after, "forward") == "1.2.4"


def test_the_way_to_add_a_value_to_an_enum_leads_there() -> None:
    """Reference schemas#breaking-changes."""
    before, after = props(a={"enum": ["x"]}), props(a={"enum": ["x", "y"]})
    assert evolve(before, after, "none") == "2.0.0"


def test_a_rejection_of_many_changes_stays_readable() -> None:
    """Reference schemas#refused-changes."""
    names = [f"p{index}" for index in range(CHANGES_NAMED_MAX + 7)]
    with pytest.raises(Invalid) as error:
        evolve(props(**dict.fromkeys(names, STRING)), props(**dict.fromkeys(names, INTEGER)), "forward")
    assert ", and 7 more" in str(error.value)


# --- any schemas ---

NAMES = st.sampled_from("abc")
SCALARS = st.sampled_from([None, True, 0, 1, 2.5, -3, "", "a", "ab", "b@example.org"])
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
KEYWORDS = {
    "title": st.text(max_size=2),
    "type": st.sampled_from([*TYPES, ["string", "null"], ["integer", "object"]]),
    "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=json.dumps),
    "minLength": st.integers(0, 2),
    "maxLength": st.integers(0, 2),
    "pattern": st.sampled_from(["a", "^b", ""]),
    "format": st.sampled_from(["email", "unknown"]),
    "minimum": st.integers(-1, 2),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "minItems": st.integers(0, 2),
    "uniqueItems": st.booleans(),
    "maxProperties": st.integers(0, 2),
    "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
    "$ref": st.sampled_from(["#", "#/definitions/d", "#/definitions/e"]),
}


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    nested = {
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "items": inner | st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "dependencies": st.dictionaries(
            NAMES, inner | st.lists(NAMES, min_size=1, max_size=2, unique=True), max_size=2
        ),
    }
    return st.lists(st.sampled_from(sorted({**KEYWORDS, **nested})), max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({keyword: {**KEYWORDS, **nested}[keyword] for keyword in chosen})
    )


PARTS = st.recursive(
    st.sampled_from([{}, STRING, INTEGER, {"type": "number"}, {"type": "object"}, string(minLength=1)]),
    _schemas,
    max_leaves=6,
)
DEFINITIONS = st.fixed_dictionaries({"d": PARTS, "e": PARTS})
SCHEMAS = st.builds(
    lambda properties, root, definitions: {**root, **properties, "definitions": definitions},
    st.builds(lambda members: {"properties": members}, st.dictionaries(NAMES, PARTS, min_size=1)) | st.just({}),
    _schemas(PARTS).map(
        lambda root: {key: value for key, value in root.items() if key not in ("type", "enum", "$ref")}
    ),
    DEFINITIONS,
)


def _is_valid(schema: dict[str, Any], mode: str = "compatible") -> bool:
    try:
        check_schema(json.dumps(schema), name="a", category="undefined", compatibility_mode=mode)
    except Invalid:
        return False
    return True


@st.composite
def changed_schemas(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema, and a copy of it with a few changes, many of which mode compatible allows."""
    original = draw(SCHEMAS.filter(_is_valid))
    submitted = deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        nodes = [node for _, node in walk(submitted)]
        node = nodes[draw(st.integers(0, len(nodes) - 1))]
        match draw(st.sampled_from(["property", "keyword", "removal", "description"])):
            case "property":
                node.setdefault("properties", {}).setdefault(draw(NAMES), deepcopy(draw(PARTS)))
            case "keyword":
                keyword = draw(st.sampled_from(sorted(KEYWORDS)))
                node[keyword] = deepcopy(draw(KEYWORDS[keyword]))
            case "removal" if removable := sorted(node.keys() - {"definitions"}):
                del node[draw(st.sampled_from(removable))]
            case _:
                node["description"] = "changed"
        assume(_is_valid(submitted))
    return original, submitted


@st.composite
def values(draw: st.DrawFn, schema: Any, root: dict[str, Any], depth: int = 5) -> Any:
    """A value that roughly has the shape of a schema."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        return draw(SCALARS | st.just({}) | st.just([]))
    if "$ref" in schema:
        schema = resolve(root, schema["$ref"])
    if (members := schema.get("anyOf", schema.get("allOf"))) and draw(st.booleans()):
        schema = {**schema, **draw(st.sampled_from(members))}
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    types = schema.get("type", TYPES)
    match draw(st.sampled_from([types] if isinstance(types, str) else types)):
        case "object":
            properties = schema.get("properties", {})
            names = draw(st.sets(NAMES)) & properties.keys() | set(schema.get("required", ()))
            return {name: draw(values(properties.get(name, {}), root, depth - 1)) for name in sorted(names)}
        case "array":
            items = schema.get("items", {})
            items = items if isinstance(items, list) else [items] * draw(st.integers(0, 2))
            return [draw(values(item, root, depth - 1)) for item in items]
        case _:
            return draw(SCALARS)


@given(SCHEMAS.filter(_is_valid))
def test_a_schema_compared_with_itself_has_no_changes(schema: dict[str, Any]) -> None:
    assert compare(json.dumps(schema), json.dumps(schema, indent=1, sort_keys=True)) == []


@given(SCHEMAS.filter(_is_valid), SCHEMAS.filter(_is_valid), st.sampled_from(["none", "forward", "compatible"]))
def test_any_two_schemas_can_be_compared_with_a_decision(
    original: dict[str, Any], submitted: dict[str, Any], mode: str
) -> None:
    assert all(change.kind in TABLE for change in compare(json.dumps(original), json.dumps(submitted)))
    if _is_rejected(original, submitted, mode):
        assert mode != "none"
    else:
        is_identical = json.dumps(original) == json.dumps(submitted)
        assert (evolve(original, submitted, mode) is None) == is_identical


@given(SCHEMAS.filter(_is_valid), SCHEMAS.filter(_is_valid))
def test_examples_of_breaking_events_do_break(original: dict[str, Any], submitted: dict[str, Any]) -> None:
    event = breaking_example(json.dumps(original), json.dumps(submitted))
    if event is not None:
        old, new = (
            check_schema(json.dumps(schema), name="a", category="undefined", compatibility_mode="forward").compile()
            for schema in (original, submitted)
        )
        assert old.is_valid(event)
        assert not new.is_valid(event)
