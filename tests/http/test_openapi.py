"""The description of the API: valid, complete, and with examples that conform to their schemas.

Source: reference operations#description.
"""

import re

import jsonschema_rs
import pytest

from rioni.http.middleware.authentication import PUBLIC, scope_of
from rioni.http.openapi.document import document
from rioni.http.problems import STATUSES
from tests.support.routes import routed


DOCUMENT = document()
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


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


@pytest.mark.parametrize("where", OPERATIONS)
def test_every_operation_has_a_description_and_a_known_tag(where):
    operation = OPERATIONS[where]
    assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
    assert operation["summary"]
    assert all(resolved(response)["description"] for response in operation["responses"].values())
    assert all(resolved(parameter)["description"] for parameter in operation["parameters"])


@pytest.mark.parametrize("where", OPERATIONS)
def test_every_segment_of_a_path_is_a_parameter(where):
    named = {each["name"] for each in OPERATIONS[where]["parameters"] if each.get("in") == "path"}
    assert named == set(re.findall(r"{(\w+)}", where))


def test_ids_of_operations_are_unique():
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(("where", "schema", "example"), list(described_examples()), ids=lambda value: str(value)[:60])
def test_every_example_conforms_to_its_schema(where, schema, example):
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    assert not [error.message for error in validator.iter_errors(example)]


def test_every_body_of_a_request_has_an_example():
    bodies = [operation["requestBody"] for operation in OPERATIONS.values() if "requestBody" in operation]
    assert bodies
    assert all("example" in body["content"]["application/json"] for body in bodies)


def test_all_components_are_used():
    text = str({"paths": DOCUMENT["paths"], "components": DOCUMENT["components"]})
    components = {kind: parts for kind, parts in DOCUMENT["components"].items() if kind != "securitySchemes"}
    names = [f"#/components/{kind}/{name}" for kind, parts in components.items() for name in parts]
    assert not [name for name in names if f"'{name}'" not in text]


@pytest.mark.parametrize("where", OPERATIONS)
def test_every_operation_except_public_ones_names_its_scope(where):
    scopes = [scope for scheme in OPERATIONS[where].get("security", []) for scope in scheme.get("token", [])]
    assert scopes == ([] if where.split()[1] in PUBLIC else [scope_of(*where.split())])
