"""The description of the API: valid, complete, and with examples that conform to their schemas.

Source: reference operations#description.
"""

import pkgutil
import re
from importlib import import_module

import jsonschema_rs

import rioni.wire
from rioni.http.bodies import body_schemas
from rioni.http.middleware.authentication import PUBLIC, scope_of
from rioni.http.openapi.document import document
from rioni.http.problems import STATUSES
from rioni.wire.base import Model
from rioni.wire.json_schema import Use, component
from tests.support.routes import routed


DOCUMENT = document()
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def wire_modules():
    return [import_module(f"rioni.wire.{module.name}") for module in pkgutil.iter_modules(rioni.wire.__path__)]


def is_struct(value):
    return isinstance(value, type) and issubclass(value, Model)


def resolved(part):
    """The target of a reference."""
    while "$ref" in part:
        reference, part = part["$ref"], DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    return part


def described_examples():
    """Every example, with its schema and its position."""
    for where, operation in OPERATIONS.items():
        for parameter in map(resolved, operation["parameters"]):
            if "example" in parameter:
                yield f"{where} {parameter['name']}", parameter["schema"], parameter["example"]
        bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
        for name, body in bodies.items():
            for media in resolved(body).get("content", {}).values():
                if "example" in media:
                    yield f"{where} {name}", media["schema"], media["example"]


def test_the_document_is_valid():
    from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: PLC0415 - takes long

    assert not [str(error) for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()]


def test_every_route_and_method_is_described_and_nothing_else():
    assert sorted(OPERATIONS) == sorted(routed())


def test_every_error_status_is_described_somewhere():
    described = {status for operation in OPERATIONS.values() for status in operation["responses"]}
    assert {str(status.value) for status in STATUSES.values()} <= described


def test_every_operation_has_a_description_and_a_known_tag():
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    lacking = {
        where
        for where, operation in OPERATIONS.items()
        if not operation["summary"]
        or not all(resolved(each)["description"] for each in operation["responses"].values())
        or not all(resolved(each)["description"] for each in operation["parameters"])
    }
    assert lacking == set()
    assert {where for where, operation in OPERATIONS.items() if operation["tags"][0] not in tags} == set()


def test_every_segment_of_a_path_is_a_parameter():
    named = {
        where: {each["name"] for each in operation["parameters"] if each.get("in") == "path"}
        for where, operation in OPERATIONS.items()
    }
    assert named == {where: set(re.findall(r"{(\w+)}", where)) for where in OPERATIONS}


def test_ids_of_operations_are_unique():
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)


def test_every_example_conforms_to_its_schema():
    examples = list(described_examples())
    assert examples
    failures = []
    for where, schema, example in examples:
        validator = jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})
        failures += [(where, example, error.message) for error in validator.iter_errors(example)]
    assert failures == []


def test_every_body_of_a_request_has_an_example():
    bodies = [operation["requestBody"] for operation in OPERATIONS.values() if "requestBody" in operation]
    assert bodies
    assert all("example" in body["content"]["application/json"] for body in bodies)


def test_all_components_are_used():
    text = str({"paths": DOCUMENT["paths"], "components": DOCUMENT["components"]})
    components = {kind: parts for kind, parts in DOCUMENT["components"].items() if kind != "securitySchemes"}
    names = [f"#/components/{kind}/{name}" for kind, parts in components.items() for name in parts]
    assert not [name for name in names if f"'{name}'" not in text]


def test_every_operation_except_public_ones_names_its_scope():
    named = {
        where: [scope for scheme in operation.get("security", []) for scope in scheme.get("token", [])]
        for where, operation in OPERATIONS.items()
    }
    expected = {where: [] if where.split()[1] in PUBLIC else [scope_of(*where.split())] for where in OPERATIONS}
    assert named == expected


def test_every_body_is_described_by_a_struct():
    """A type that has no struct of its own is a part of one, or the events whose form an event type decides."""
    structs = [each for module in wire_modules() for each in vars(module).values() if is_struct(each)]
    named = {component(struct, use) for struct in structs for use in Use} | {
        shape.described.get("title") for shape in vars(body_schemas).values() if isinstance(shape, body_schemas.Shape)
    }
    schemas = DOCUMENT["components"]["schemas"].items()
    objects = {name for name, each in schemas if each.get("properties", {}).keys() - {"items", "_links"}}
    variants = {"StreamParameters", "Liveness", "NoLiveness", "Readiness", "NoReadiness"}
    assert objects - named - variants == {"Event"}
