import pytest

from rioni.domain.schemas.walker import SchemaCycle, expanded_paths, resolve, walk


STRING = {"type": "string"}


def reference(name):
    return {"$ref": f"#/definitions/{name}"}


def definitions(**members):
    return {"definitions": members, "$ref": "#/definitions/a"}


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("#", "root"),
        ("#/definitions/a", STRING),
        ("#/definitions/b~1c~0d", 1),
        ("#/definitions/b%2Fc", None),
        ("#/definitions/x%20y", 2),
        ("#/allOf/1", 4),
        ("#/allOf/2", None),
        ("#/allOf/-1", None),
        ("#/definitions/nope", None),
        ("#anchor", None),
        ("http://x/y", None),
        ("file:///etc/passwd", None),
    ],
)
def test_only_pointers_into_the_document_are_resolved(pointer, found):
    root = {"definitions": {"a": STRING, "b/c~d": 1, "x y": 2}, "allOf": [3, 4]}
    if found is None:
        with pytest.raises(LookupError):
            resolve(root, pointer)
    else:
        assert resolve(root, pointer) == (root if found == "root" else found)


def test_all_schema_objects_are_found_with_their_pointers():
    schema = {
        "definitions": {"unused": STRING},
        "properties": {"not": {"not": {}}, "$ref": {"$ref": "#/elsewhere/x"}},
        "items": [{}, {}],
        "additionalItems": {},
        "enum": [{"$ref": "http://no/schema"}],
        "default": {"properties": {"a": {}}},
        "elsewhere": {"x": {"items": {}}, "y": {}},
    }
    assert {str(pointer) for pointer, _ in walk(schema)} == {
        "#",
        "#/definitions/unused",
        "#/properties/not",
        "#/properties/not/not",
        "#/properties/$ref",
        "#/elsewhere/x",
        "#/elsewhere/x/items",
        "#/items/0",
        "#/items/1",
        "#/additionalItems",
    }


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ({}, 1),
        ({"properties": {"a": STRING, "b": STRING}}, 2),
        ({"properties": {"a": STRING}, "additionalProperties": {}}, 3),
        ({"properties": {"a": STRING}, "items": {"items": {}}}, 3),
        ({"items": [STRING, {"allOf": [{}, {}]}]}, 4),
        ({"allOf": [STRING, {"properties": {"a": STRING}}], "properties": {"a": STRING}}, 5),
        (definitions(a={"anyOf": [reference("b"), reference("b")]}, b=STRING), 6),
    ],
)
def test_paths_count_each_use_of_a_schema(schema, paths):
    assert expanded_paths(schema, enough=100) == paths


def doubling(levels):
    rest = {f"d{n}": {"anyOf": [reference(f"d{n + 1}"), reference(f"d{n + 1}")]} for n in range(levels)}
    return {"definitions": rest | {f"d{levels}": STRING}, "$ref": "#/definitions/d0"}


def test_expanded_schemas_are_counted_without_expansion():
    assert expanded_paths(doubling(40), enough=10**30) > 2**40


@pytest.mark.parametrize(
    "member",
    [
        {"anyOf": [{"properties": {"x": reference("a")}}, {"properties": {"x": reference("a")}}]},
        {"properties": {"x": reference("a")}, "patternProperties": {"x": reference("a")}},
        {"items": {"allOf": [reference("a"), reference("a")]}},
    ],
)
def test_recursion_that_doubles_at_every_level_exceeds_any_budget(member):
    assert expanded_paths(definitions(a=member), enough=100_000) > 100_000


@pytest.mark.parametrize(
    "member",
    [
        {"properties": {"left": reference("a"), "right": reference("a")}},
        {
            "oneOf": [
                {"properties": {"and": {"items": reference("a")}}},
                {"properties": {"or": {"items": reference("a")}}},
            ]
        },
        {"additionalProperties": reference("a")},
    ],
)
def test_ordinary_recursion_costs_little(member):
    assert expanded_paths(definitions(a=member), enough=100_000) < 1000


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        definitions(a=reference("b"), b=reference("a")),
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"x": {"not": {"$ref": "#/properties/x"}}}},
        {"definitions": {"unused": {"anyOf": [{}, {"$ref": "#/definitions/unused"}]}}},
    ],
)
def test_references_that_descend_into_no_value_are_a_cycle(schema):
    with pytest.raises(SchemaCycle):
        expanded_paths(schema, enough=100)


def test_thousands_of_chained_references_do_not_exhaust_the_stack():
    members = {f"d{n}": reference(f"d{n + 1}") for n in range(5000)}
    schema = {"definitions": members | {"d5000": STRING}, "$ref": "#/definitions/d0"}
    assert expanded_paths(schema, enough=10**6) == 5002
