"""The description of the API as one OpenAPI 3.1 document, which `GET /openapi.json` returns and `/docs` shows."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from rioni import __version__
from rioni.http.middleware.authentication import PUBLIC, scope_of
from rioni.http.middleware.requests import ANY_MEDIA
from rioni.http.openapi import components
from rioni.http.openapi.builders import NEVER, Json, problem, reference
from rioni.http.openapi.paths import (
    administration,
    audit,
    event_types,
    events,
    monitoring,
    partitions,
    schemas,
    subscriptions,
)


# Gives the schemas within others places of their own: generators of clients make a type for each, with its name.

_ABOUT = frozenset(("description", "default", "example", "examples"))
"""The keywords that describe a member, not the type that it shares with others."""
_VERBATIM = frozenset(("default", "enum", "example", "examples"))
"""Keywords whose values are no schemas."""
_WHOLE_NUMBERS: Json = {"format": "int64"}
_ANYTHING: Json = {"additionalProperties": {}}


class NamedSchemas:
    """Collects the schemas with a title, which is their name, and leaves references in their places.

    Whole numbers are declared to have 64 bits, and objects without keywords to allow any members: generators take the
    first for 32 bits and the second for empty.
    """

    def __init__(self) -> None:
        self.found: dict[str, Json] = {}

    def referring(self, part: Any) -> Any:
        """A part of a document with references for the schemas that have a title.

        Raises:
            AssertionError: two schemas have the same title.
        """
        match part:
            case {"title": str(name), "type": str() | list()}:
                return self._reference(name, part)
            case Mapping():
                return self._complete({key: self._value(key, value) for key, value in part.items()})
            case list() | tuple():
                return [self.referring(each) for each in part]
        return part

    def members_of(self, component: Json) -> Json:
        """A schema that has its place, and name, already: only schemas inside it are collected."""
        return dict(self.referring({key: value for key, value in component.items() if key != "title"}))

    def _value(self, key: str, value: Any) -> Any:
        return value if key in _VERBATIM else self.referring(value)

    def _reference(self, name: str, part: Json) -> Json:
        kinds = [part["type"]] if isinstance(part["type"], str) else [*part["type"]]
        (kind,) = (each for each in kinds if each != "null")
        shape = {key: value for key, value in part.items() if key not in _ABOUT} | {"type": kind}
        if "properties" not in shape:
            shape["enum"] = [*components.LITERALS[name]]
        shape = self.members_of(shape)
        assert self.found.setdefault(name, shape) == shape, f"two schemas are called {name}"
        about = {key: value for key, value in part.items() if key in _ABOUT}
        to_it = reference("schemas", name)
        return ({"anyOf": [to_it, {"type": "null"}]} if "null" in kinds else to_it) | about

    @staticmethod
    def _complete(part: Json) -> Json:
        kinds = part.get("type", ())
        if "integer" in kinds and "format" not in part:
            return part | _WHOLE_NUMBERS
        if "object" in kinds and not part.keys() & {"properties", "additionalProperties"}:
            return part | _ANYTHING
        return part


_EVERYWHERE = (400, 406, 421, 500, 503)
_WITH_TOKEN = (401, 403)
_WITH_BODY = (408, 413, 429)
_MEDIA_TYPE = 415
_WITH_SEGMENTS = 404
_INVALID = 422
_QUOTA = 429
COMMON = (*_EVERYWHERE, *_WITH_TOKEN, *_WITH_BODY, _MEDIA_TYPE)
"""The problems that are much the same for all operations."""
_TAGS = {
    "Event types": "What kinds of events there are, and what holds for each.",
    "Schemas": "What the events of an event type look like, version by version.",
    "Publishing": "Publishing events.",
    "Subscriptions": "Who reads which event types; the broker remembers how far.",
    "Consuming": "Streaming events and committing cursors.",
    "Dead letters": "Events that the consumers of a subscription never commit.",
    "Partitions and cursors": "The offsets of partitions, and cursor arithmetic.",
    "Low-level streams": "Reading without a subscription.",
    "Timelines": "Where the events of an event type are stored: for administrators of the broker.",
    "Settings": "Administrators, blocked clients and features: for administrators of the broker.",
    "Storages": "Where events are stored: for administrators of the broker.",
    "Audit": "What happened, and by whom: for administrators and auditors of the broker.",
    "Jobs": "Archives and backups, and how far they are.",
    "Rebuilds": "Rebuilds of the read models from the log.",
    "Transparency log": "Signed checkpoints of the log, and proofs that nothing in it was changed (C2SP, RFC 9162).",
    "Operating": "For monitoring, tooling and client development.",
}
_DESCRIPTION = """\
Rioni is an event broker: producers publish events over HTTP, consumers stream them back.

An event type says what its events look like and who may use it. Its events lie in partitions, in the order in which
they were published. A subscription reads one or more event types; its streams share the partitions, and commit cursors
to say what they have processed.

Where the broker asks for tokens, every path but `/health`, `/livez`, `/readyz`, `/docs` and `/openapi.json` needs one,
with the scope `uid` or, in the mode `full`, with the scope that is named with each operation.

Requests that a browser sends for a web page of another site are refused (403) unless they only read.

HEAD is allowed wherever GET is; it answers with the same status and headers, and opens no stream.

Bodies are JSON in UTF-8. Refusals are problems (RFC 9457) whose `detail` says what to do."""


def document(base_path: str = "") -> Json:
    """The whole document, newly made, of plain JSON values.

    Args:
        base_path: the path below which the broker is served; empty for `/`.
    """
    paths: Json = {}
    for tag, path, method, operation in _operations():
        paths.setdefault(path, {})[method] = _completed(tag, path, method, operation)
    used = {reference.rpartition("/")[2] for reference in _references(paths)}
    named = NamedSchemas()
    responses = {name: _with_headers(each) for name, each in components.responses().items() if name in used}
    paths, responses, parameters = (named.referring(part) for part in (paths, responses, components.PARAMETERS))
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "Rioni",
            "version": __version__,
            "summary": "An event broker that serves the Nakadi API.",
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": base_path or "/", "description": "This broker."}],
        "tags": [{"name": name, "description": description} for name, description in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": named.found,
            "responses": responses,
            "headers": components.HEADERS,
            "parameters": parameters,
            "securitySchemes": components.SECURITY_SCHEMES,
        },
    }
    plain: Json = orjson.loads(orjson.dumps(described))
    return plain


def _operations() -> Iterator[tuple[str, str, str, Json]]:
    """Tag, path and method of each operation, with its description."""
    parts = (event_types, schemas, partitions, events, subscriptions, audit, administration, monitoring)
    for part in parts:
        for tag, operations in part.OPERATIONS.items():
            for place, operation in operations.items():
                method, path = place.split()
                yield tag, path, method.lower(), operation


def _references(paths: Json) -> Iterator[str]:
    """The references to whole responses."""
    for methods in paths.values():
        for operation in methods.values():
            yield from (response["$ref"] for response in operation["responses"].values() if "$ref" in response)


def _completed(tag: str, path: str, method: str, operation: Json) -> Json:
    """An operation with its tag and the parts common to all of its kind."""
    if method == "get" and path in audit.HISTORICAL:
        operation = audit.in_the_past(operation)
    named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
    segments = re.findall(r"{(\w+)}", path)
    statuses = [*_EVERYWHERE, *([_WITH_SEGMENTS] if segments else ())]
    shared = ["FlowId", "SpanContext"]
    if method not in ("get", "delete") and path not in ANY_MEDIA:
        statuses.append(_MEDIA_TYPE)
    if "requestBody" in operation:
        statuses += (*_WITH_BODY, _INVALID)
    if method != "get":
        statuses.append(_QUOTA)
    if "requestBody" in operation and method == "post":
        shared.append("ContentEncoding")
    security: Json = {}
    if path not in PUBLIC:
        statuses += _WITH_TOKEN
        # No token is needed if authentication is off.
        security = {"security": [{"token": [scope_of(method.upper(), path)]}, {}]}
    responses = {status: problem(status) for status in statuses if status not in operation[NEVER]}
    responses |= operation["responses"]
    return (
        {"tags": [tag]}
        | {key: value for key, value in operation.items() if key != NEVER}
        | security
        | {
            "parameters": [
                *(components.SEGMENTS[name] for name in segments if name not in named),
                *operation["parameters"],
                *(reference("parameters", name) for name in shared),
            ],
            "responses": {str(status): _with_headers(responses[status]) for status in sorted(responses)},
        }
    )


def _with_headers(response: Json) -> Json:
    """A response with the headers that every answer has."""
    if "$ref" in response:
        return response
    everywhere: dict[str, Any] = {name: reference("headers", name) for name in ("X-Flow-Id", "span_ctx")}
    return response | {"headers": everywhere | response["headers"]}
