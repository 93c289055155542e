"""Rules for the description of the API that client generators need: without each of them one has failed.

Source: reference operations#description.
"""

import keyword
import re
from collections import Counter

import pytest

from rioni.http.openapi.components import LITERALS
from rioni.http.openapi.document import NamedSchemas, document


DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
RESERVED = {"Null", "Object", "Schema"}
"""Names that generators change, or that are those of their own classes."""
VERBATIM = ("default", "enum", "example", "examples")


def parts(part, position=""):
    """Every object of a document that may be a schema, with its position."""
    if isinstance(part, dict):
        yield position, part
        for name, value in part.items():
            if name not in VERBATIM:
                yield from parts(value, f"{position}/{name}")
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from parts(value, f"{position}/{index}")


def kinds(schema):
    kind = schema.get("type", ())
    return {kind} if isinstance(kind, str) else {each for each in kind if isinstance(each, str)}


def camel(text):
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", text))


def snake(text):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()


PARTS = [(position, part) for position, part in parts(DOCUMENT) if not position.endswith("/properties")]


def found(condition):
    return [position for position, part in PARTS if condition(position, part)]


def incomplete(kind, *keywords):
    return [position for position, part in PARTS if kind in kinds(part) and not part.keys() & {*keywords}]


def test_nothing_is_null_alone():
    assert found(lambda position, part: kinds(part) == {"null"} and not re.search(r"/anyOf/\d+$", position)) == []


def test_alternatives_are_a_named_schema_or_null():
    def odd(position, part):
        alternatives = part.get("anyOf", [{"$ref": ""}, {"type": "null"}])
        simple = len(alternatives) == 2 and alternatives[1] == {"type": "null"}
        return not simple or bool(part.keys() & {"oneOf", "allOf", "not"}) or isinstance(part.get("anyOf"), dict)

    assert found(odd) == []


def test_every_object_with_members_and_every_enumeration_has_a_name():
    def anonymous(position, part):
        is_schema = isinstance(part.get("properties"), dict) or isinstance(part.get("enum"), list)
        return is_schema and not re.fullmatch(r"/components/schemas/\w+", position)

    assert found(anonymous) == []


def test_names_stand_for_objects_and_enumerations():
    """For others, such as arrays and maps, generators make no type."""
    assert [name for name, schema in SCHEMAS.items() if not schema.keys() & {"properties", "enum"}] == []


def test_names_are_different_in_every_language():
    assert [name for name in SCHEMAS if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name) or name in RESERVED] == []
    assert [name for name, count in Counter(map(str.lower, SCHEMAS)).items() if count > 1] == []


def test_no_member_with_parts_is_called_like_its_object():
    """A function that reads the object has a variable for each, which would have two types."""
    alike = {name: schema.get("properties", {}).get(snake(name), {}) for name, schema in SCHEMAS.items()}
    assert [name for name, member in alike.items() if member and not kinds(member) <= {"string", "integer"}] == []
    assert [name for name, member in alike.items() if member.keys() & {"$ref", "anyOf"}] == []


def test_members_and_literals_stay_different_when_they_are_written_as_a_language_has_it():
    alike = []
    for name, schema in SCHEMAS.items():
        members = Counter(camel(member).lower() for member in schema.get("properties", ()))
        literals = Counter(camel(str(literal)).upper() for literal in schema.get("enum", ()))
        alike += [(name, each) for counted in (members, literals) for each, count in counted.items() if count > 1]
    assert alike == []
    assert [name for name, schema in SCHEMAS.items() if None in schema.get("enum", ())] == []


def test_ids_of_operations_are_names_of_methods():
    ids = [operation["operationId"] for operation in OPERATIONS]
    assert [each for each in ids if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", each)] == []
    assert len({camel(each) for each in ids}) == len(ids)
    assert [each for each in ids if keyword.iskeyword(each)] == []


def test_parameters_of_an_operation_have_different_names():
    shared = DOCUMENT["components"]["parameters"]
    for operation in OPERATIONS:
        parameters = [shared.get(each.get("$ref", "").rpartition("/")[2], each) for each in operation["parameters"]]
        names = Counter(camel(each["name"]).lower() for each in parameters)
        assert names.most_common(1)[0][1] == 1, operation["operationId"]


def test_whole_numbers_say_how_large_they_are():
    assert incomplete("integer", "format") == []


def test_objects_say_what_members_they_have():
    assert incomplete("object", "properties", "additionalProperties") == []


def test_events_keep_the_members_that_are_not_described():
    assert SCHEMAS["Event"]["additionalProperties"] is True


def test_every_body_of_a_request_has_a_schema():
    bodies = [media for each in OPERATIONS for media in each.get("requestBody", {"content": {}})["content"].values()]
    assert bodies
    assert [media for media in bodies if "schema" not in media] == []


def test_a_nullable_literal_is_its_name_or_null():
    named = NamedSchemas()
    order = {"title": "SeriesOrder", "type": ["string", "null"], "description": "First.", "default": "name"}
    reference = {"$ref": "#/components/schemas/SeriesOrder"}
    assert named.referring({"items": [order]}) == {
        "items": [{"anyOf": [reference, {"type": "null"}], "description": "First.", "default": "name"}]
    }
    assert named.found == {"SeriesOrder": {"type": "string", "enum": ["name", "largest"]}}


def test_every_literal_is_used():
    assert LITERALS.keys() - SCHEMAS.keys() == set()


def test_different_schemas_have_different_names():
    named = NamedSchemas()
    named.referring({"title": "Colour", "type": "object", "properties": {"red": {"type": "integer"}}})
    with pytest.raises(AssertionError, match="Colour"):
        named.referring({"title": "Colour", "type": "object", "properties": {"blue": {"type": "integer"}}})
