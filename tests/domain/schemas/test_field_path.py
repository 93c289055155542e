import pytest

from rioni.domain.limits import PATH_SEGMENTS_MAX, PATHS_MAX
from rioni.domain.schemas import field_path
from rioni.domain.schemas.field_path import (
    LOOKS_MAX,
    DeclaredPaths,
    FieldPath,
    MissingField,
    TooMuchToLookFor,
    parse_path,
)


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("a", ("a",)),
        ("a.b.c", ("a", "b", "c")),
        ("a.'b.c'.d", ("a", "b.c", "d")),
        ("'a.b'", ("a.b",)),
        (r"a\.b", ("a.b",)),
        (r"a\'b.c", ("a'b", "c")),
        (r"'a\'.b'", ("a'.b",)),
        (r"a\\.b", ("a\\", "b")),
        ("a\\", ("a",)),
        ("", ("",)),
    ],
)
def test_dots_separate_unless_quoted_or_escaped(text, segments):
    """Reference event-types#field-paths."""
    assert parse_path(text) == FieldPath(segments)


def test_null_counts_as_a_value():
    assert parse_path("a.b").read({"a": {"b": None}}) is None


@pytest.mark.parametrize(
    ("event", "segment"),
    [({}, "a"), ({"a": {}}, "b"), ({"a": "b"}, "b"), ({"a": None}, "b"), ({"a": [{"b": 1}]}, "b"), ({"a": 1}, "b")],
)
def test_the_missing_segment_is_named(event, segment):
    with pytest.raises(MissingField, match=f"^field {segment} doesn't exist.$"):
        parse_path("a.b").read(event)


STRING = {"type": "string"}
A, B = {"properties": {"a": STRING}}, {"properties": {"b": STRING}}


@pytest.mark.parametrize(
    ("schema", "path", "declared"),
    [
        (A, "a", True),
        (A, "b", False),
        (A, "a.b", False),
        ({"properties": {"a": B}}, "a.b", True),
        ({"properties": {"a": {"items": B}}}, "a.b", False),
        ({"properties": {"a.b": STRING}}, "'a.b'", True),
        ({"definitions": {"x": A}, "properties": {"x": {"$ref": "#/definitions/x"}}}, "x.a", True),
        ({"definitions": {"x/y": A}, "$ref": "#/definitions/x~1y"}, "a", True),
        ({"patternProperties": {"^a": B}}, "abc.b", True),
        ({"patternProperties": {"^a": B}}, "bc.b", False),
        ({"allOf": [A, {"properties": {"a": STRING, "b": STRING}}]}, "a", True),
        ({"allOf": [A, B]}, "a", False),
        ({"anyOf": [A, B]}, "b", True),
        ({"anyOf": [A, B]}, "c", False),
        ({"oneOf": [A, B]}, "a", True),
        ({"oneOf": [A, A]}, "a", False),
        ({**B, "allOf": [A]}, "b", True),
        ({"additionalProperties": True}, "a", False),
    ],
)
def test_a_path_exists_where_every_segment_is_declared(schema, path, declared):
    """Reference event-types#field-paths."""
    assert DeclaredPaths(schema).declares(parse_path(path)) is declared


def doubled(times):
    """A schema whose first object refers twice to the next one, and so on."""
    definitions = {"d0": STRING}
    for number in range(times):
        reference = {"$ref": f"#/definitions/d{number}"}
        definitions[f"d{number + 1}"] = {"anyOf": [reference, reference]}
    return {"definitions": definitions, "$ref": f"#/definitions/d{times}"}


def looks(schema, paths):
    """The number of schema objects that are visited for some paths."""
    declared = DeclaredPaths(schema)
    for path in paths:
        declared.declares(parse_path(path))
    return LOOKS_MAX - declared._matcher._looks_left


def test_schemas_with_many_references_are_visited_once():
    """14 objects that double expand to 16,000; 140 of them take ten times as long, and not 2^126 times."""
    paths = [f"absent_{number}" for number in range(PATHS_MAX)]
    assert looks(doubled(140), paths) < 11 * looks(doubled(14), paths) < LOOKS_MAX


def test_paths_through_a_recursive_schema_are_followed_to_the_maximum_depth_of_events():
    """Reference event-types#definition-limits."""
    schema = {"properties": {"a": {"$ref": "#"}, "b": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    for name in "ab":
        assert DeclaredPaths(schema).declares(FieldPath((name,) * PATH_SEGMENTS_MAX))
        assert not DeclaredPaths(schema).declares(FieldPath((name,) * (PATH_SEGMENTS_MAX + 1)))


def test_chains_of_references_may_be_longer_than_the_stack():
    links = 4_000
    definitions = {f"d{number}": {"$ref": f"#/definitions/d{number + 1}"} for number in range(links)}
    schema = {"definitions": definitions | {f"d{links}": A}, "$ref": "#/definitions/d0"}
    assert DeclaredPaths(schema).declares(parse_path("a"))


def test_all_paths_together_have_a_limit():
    """Reference event-types#definition-limits."""
    wide = {"properties": {"a": {"anyOf": [{"properties": {f"p{number}": STRING}} for number in range(4_000)]}}}
    declared = DeclaredPaths(wide)
    with pytest.raises(TooMuchToLookFor):
        all(declared.declares(parse_path(f"a.p{number}")) for number in range(PATHS_MAX))


def test_an_expensive_pattern_is_not_matched(monkeypatch):
    schema = {"patternProperties": {"((a{1,100}){1,50})x$": STRING}}
    monkeypatch.setattr(field_path, "Draft4Validator", lambda *_args, **_kwargs: None)
    with pytest.raises(TooMuchToLookFor):
        DeclaredPaths(schema).declares(parse_path("a" * 400))
