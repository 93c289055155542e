import pytest

from rioni.domain.field_path import FieldPath, MissingField, declares, parse_path


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
    assert parse_path(text) == FieldPath(segments)


def test_null_is_a_value():
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
    assert declares(schema, parse_path(path)) is declared
