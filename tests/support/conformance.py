"""Whether the answers of a broker are what its description of the API says."""

import functools
import json
import re
from typing import Any

import httpx
import jsonschema_rs

from rioni.http.openapi.builders import MAY_BE_EMPTY
from rioni.http.openapi.document import document


JSON = ("application/json", "application/problem+json")
OLD_PROBLEM = "application/x.problem+json"


def check(response: httpx.Response) -> None:
    """Check status, headers, media type and JSON of an answer; the lines of a stream are left alone."""
    operation = _operation(response.request.method, response.request.url.path)
    if operation is None:
        return
    called = f"{response.request.method} {response.request.url.path}"
    described = operation["responses"].get(str(response.status_code))
    assert described is not None, (
        f"rioni/http/openapi does not describe that {called} may answer {response.status_code}: {_text(response)}"
    )
    described = resolved(described)
    missing = [
        name
        for name, header in described["headers"].items()
        if resolved(header).get("required") and name not in response.headers
    ]
    assert not missing, f"{called} answers without the headers {missing} that rioni/http/openapi describes"
    if described.get(MAY_BE_EMPTY) and not _text(response):
        return
    media = response.headers.get("content-type", "").replace(OLD_PROBLEM, JSON[1])
    content = {name.partition(";")[0]: each for name, each in described.get("content", {}).items()}
    if not content:
        assert not _text(response), f"{called} answers {response.status_code} with a body that is not described"
        return
    media = media.partition(";")[0]
    assert media in content, f"rioni/http/openapi does not describe that {called} may answer {media}"
    if media in JSON:
        validator = _validator(media, operation["operationId"], str(response.status_code))
        errors = [error.message for error in validator.iter_errors(json.loads(_text(response)))]
        assert not errors, f"{called} answers what rioni/http/openapi does not describe: {errors}"


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """The target of a reference in the description."""
    while "$ref" in part:
        reference, part = part["$ref"], _document()
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    return part


@functools.cache
def _document() -> dict[str, Any]:
    return document()


@functools.cache
def _validator(media: str, operation_id: str, status: str) -> jsonschema_rs.Validator:
    operations = (each for methods in _document()["paths"].values() for each in methods.values())
    operation = next(each for each in operations if each["operationId"] == operation_id)
    schema = resolved(operation["responses"][status])["content"][media]["schema"]
    return jsonschema_rs.Draft202012Validator({**schema, "components": _document()["components"]})


def _operation(method: str, path: str) -> dict[str, Any] | None:
    """The operation that a request calls; the most literal of the paths that match."""
    found = [template for template, pattern in _patterns() if pattern.fullmatch(path.rstrip("/"))]
    methods = _document()["paths"][min(found, key=lambda template: template.count("{"))] if found else {}
    return methods.get(method.lower())


@functools.cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [(path, re.compile(re.sub(r"{\w+}", "[^/]+", path))) for path in _document()["paths"]]


def _text(response: httpx.Response) -> str:
    response.read()
    return response.text
