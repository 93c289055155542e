"""The description of the API as one OpenAPI 3.1 document, which `GET /openapi.json` returns and `/docs` shows."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from rioni import __version__
from rioni.http.middleware.authentication import PUBLIC, scope_of
from rioni.http.middleware.requests import ANY_MEDIA
from rioni.http.openapi import components
from rioni.http.openapi.builders import Json, problem, reference
from rioni.http.openapi.literals import LITERALS
from rioni.http.openapi.paths import (
    administration,
    audit,
    dead_letters,
    event_types,
    events,
    jobs,
    monitoring,
    partitions,
    schemas,
    subscriptions,
    transparency_log,
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
            shape["enum"] = [*LITERALS[name]]
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
_QUOTA = 429
COMMON = (*_EVERYWHERE, *_WITH_TOKEN, *_WITH_BODY, _MEDIA_TYPE)
"""The problems that are much the same for all operations."""
_TAGS = {
    event_types.EVENT_TYPES: "What kinds of events there are, and what holds for each.",
    schemas.SCHEMAS: "What the events of an event type look like, version by version.",
    events.PUBLISHING: "Publishing events.",
    subscriptions.SUBSCRIPTIONS: "Who reads which event types; the broker remembers how far.",
    subscriptions.CONSUMING: "Streaming events and committing cursors.",
    dead_letters.DEAD_LETTERS: "Events that the consumers of a subscription never commit.",
    partitions.PARTITIONS: "The offsets of partitions, and cursor arithmetic.",
    events.STREAMS: "Reading without a subscription.",
    partitions.TIMELINES: "Where the events of an event type are stored: for administrators of the broker.",
    administration.SETTINGS: "Administrators, blocked clients and features: for administrators of the broker.",
    administration.STORAGES: "Where events are stored: for administrators of the broker.",
    audit.AUDIT: "What happened, and by whom: for administrators and auditors of the broker.",
    jobs.JOBS: "Archives and backups, and how far they are.",
    jobs.REBUILDS: "Rebuilds of the read models from the log.",
    transparency_log.LOG: "Signed checkpoints of the log, and proofs that nothing in it was changed (C2SP, RFC 9162).",
    monitoring.OPERATING: "For monitoring, tooling and client development.",
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
    paths = {
        path: {method: _completed(path, method, operation) for method, operation in methods.items()}
        for path, methods in _paths()
    }
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


def _paths() -> Iterator[tuple[str, Json]]:
    found: dict[str, Json] = {}
    for part in (
        event_types,
        schemas,
        partitions,
        partitions,
        events,
        subscriptions,
        dead_letters,
        audit,
        transparency_log,
        jobs,
        jobs,
        administration,
        monitoring,
    ):
        for path, methods in part.PATHS.items():
            found.setdefault(path, {}).update(methods)
    return iter(found.items())


def _references(paths: Json) -> Iterator[str]:
    """The references to whole responses."""
    for methods in paths.values():
        for operation in methods.values():
            yield from (response["$ref"] for response in operation["responses"].values() if "$ref" in response)


def _completed(path: str, method: str, operation: Json) -> Json:
    """An operation with the parts common to all of its kind."""
    if method == "get" and path in audit.HISTORICAL:
        operation = audit.in_the_past(operation)
    responses: dict[int, Json] = {status: problem(status) for status in _EVERYWHERE}
    shared = ["FlowId", "SpanContext"]
    if method not in ("get", "delete") and path not in ANY_MEDIA:
        responses[_MEDIA_TYPE] = problem(_MEDIA_TYPE)
    if "requestBody" in operation:
        responses |= {status: problem(status) for status in _WITH_BODY}
    if method != "get":
        responses[_QUOTA] = problem(_QUOTA)
    if "requestBody" in operation and method == "post":
        shared.append("ContentEncoding")
    security: Json = {}
    if path not in PUBLIC:
        responses |= {status: problem(status) for status in _WITH_TOKEN}
        # No token is needed if authentication is off.
        security = {"security": [{"token": [scope_of(method.upper(), path)]}, {}]}
    responses |= operation["responses"]
    return (
        operation
        | security
        | {
            "parameters": [*operation["parameters"], *(reference("parameters", name) for name in shared)],
            "responses": {str(status): _with_headers(responses[status]) for status in sorted(responses)},
        }
    )


def _with_headers(response: Json) -> Json:
    """A response with the headers that every answer has."""
    if "$ref" in response:
        return response
    everywhere: dict[str, Any] = {name: reference("headers", name) for name in ("X-Flow-Id", "span_ctx")}
    return response | {"headers": everywhere | response["headers"]}
