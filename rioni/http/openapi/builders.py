"""Builders of OpenAPI operations, parameters and responses.

An operation describes only its specifics. Whatever applies to all operations, to all with a body or to all with a
parameter in their path (flow id, span context, the parameters of the path, problems that any such request may meet) is
added by `document`.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from rioni.http.bodies.body_schemas import Shape
from rioni.http.problems import PROBLEM_JSON
from rioni.wire import json_schema
from rioni.wire.base import Model
from rioni.wire.pages import Links, Problem


Json = json_schema.Json

JSON = "application/json"
MAY_BE_EMPTY = "x-may-be-empty"
"""Marks an answer that may have a body or none, which OpenAPI can't express."""
NEVER = "never"
"""The member of an operation with the statuses that it never answers; `document` takes it away."""
STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
BOOLEAN: Json = {"type": "boolean"}
BINARY: Json = {"type": "string", "format": "binary"}
FLAG: Json = BOOLEAN | {"default": False}
TIMESTAMP = json_schema.TIMESTAMP

PROBLEMS: Mapping[int, str] = {
    400: "The request can't be read: not JSON, a member or parameter of the wrong type, an unknown literal.",
    401: "There is no token, or none that is valid.",
    403: "The client may not do this or is blocked, its token lacks the scope or is of another realm, or a browser "
    "sent the request for a web page of another site.",
    404: "What the path names does not exist.",
    406: "The client accepts no form of the answer that there is, or compressed a request that is no POST.",
    408: "The body took too long to come.",
    409: "The state of the resource excludes this.",
    412: "The resource is no longer, or never was, what the request takes it for.",
    413: "The body, or the body after inflating, is too large.",
    415: "The body is not `application/json`.",
    421: "The header `Host` names no host that the broker answers to.",
    422: "The request can be read but is against a rule; `detail` names the rule.",
    429: "There are too many connections of this kind, or bodies of this client that are not answered yet, or a "
    "quota of this client is used up: `Retry-After` says when to try again.",
    500: "A defect of the broker; `detail` has a number that the broker's log names too.",
    501: "The feature is switched off.",
    503: "A dependency is missing or writing is switched off: the same request may succeed later.",
}
"""The meaning of a problem of each status, unless an operation has a more precise description."""


def operation(
    summary: str,
    answers: Json | dict[int, Json],
    *,
    description: str = "",
    parameters: Sequence[Json] = (),
    body: Json | None = None,
    problems: Iterable[int] | Mapping[int, str] = (),
    never: Iterable[int] = (),
    deprecated: bool = False,
) -> Json:
    """Describe one method of one path.

    Args:
        summary: its effect, as a short imperative; unique, since links are made of it.
        answers: the successful answer with status 200, or the answers by status.
        description: further text for clients; paragraphs are separated by empty lines, `code` by backticks.
        parameters: the parameters of query and header, and those of the path that differ from `components.SEGMENTS`.
        body: the body of the request; see `body`.
        problems: further statuses that it may answer with a problem; as a mapping, with their meanings here.
        never: statuses of others with such a path or body that it never answers.
        deprecated: whether clients should use another operation.
    """
    own = problems if isinstance(problems, Mapping) else dict.fromkeys(problems, "")
    successes: dict[Any, Any] = {200: answers} if "description" in answers else {**answers}
    described: Json = {
        "operationId": re.sub(r"[^a-z0-9]+", "-", summary.lower()).strip("-"),
        "summary": summary,
        "parameters": list(parameters),
        "responses": successes | {status: problem(status, text) for status, text in own.items()},
        NEVER: frozenset(never),
    }
    if description:
        described["description"] = description
    if body:
        described["requestBody"] = body
    if deprecated:
        described["deprecated"] = True
    return described


def answer(
    description: str,
    schema: Json | type[Model] | None = None,
    example: Any = None,
    *,
    media: str = JSON,
    headers: Iterable[str] = (),
) -> Json:
    """A response of an operation: without a schema it has no body.

    Args:
        description: the condition and meaning of the response.
        schema: the struct or the schema of the body.
        example: an example of the body.
        media: the type of the body.
        headers: names of `components/headers`, in addition to those of every answer.
    """
    described: Json = {
        "description": description,
        "headers": {name: reference("headers", name) for name in headers},
    }
    if schema is not None:
        described["content"] = {media: _media(schema if isinstance(schema, dict) else of(schema), example)}
    return described


def problem(status: int, description: str = "") -> Json:
    """A problem response; refers to the shared component for the status unless `description` is given."""
    if not description:
        return reference("responses", problem_name(status))
    example = {"title": HTTPStatus(status).phrase, "status": status, "detail": "…"}
    return answer(description, of(Problem), example, media=PROBLEM_JSON)


def or_problem(described: Json) -> Json:
    """An answer whose status may come with a problem as well."""
    return described | {"content": described["content"] | {PROBLEM_JSON: _media(of(Problem), None)}}


def also(described: Json, media: str, schema: Json | None = None) -> Json:
    """A body or an answer that may be of another media type as well, which mostly no schema describes."""
    return described | {"content": {**described["content"], media: {} if schema is None else {"schema": schema}}}


def problem_name(status: int) -> str:
    """The name that `components` has for the problems of a status, such as `BadRequest`."""
    return HTTPStatus(status).name.title().replace("_", "")


def body(shape: Shape | Json, example: Any, *, description: str = "") -> Json:
    """The body of a request."""
    schema = shape.described if isinstance(shape, Shape) else shape
    described: Json = {"required": True, "content": {JSON: _media(schema, example)}}
    return described | ({"description": description} if description else {})


def path(name: str, description: str, example: str, schema: Json = STRING) -> Json:
    """A segment of the path."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
        "example": example,
    }


def query(name: str, description: str, schema: Json = STRING, example: Any = None) -> Json:
    """A parameter of the query."""
    return _optional({"name": name, "in": "query", "description": description, "schema": schema}, example)


def queries(members: Json) -> list[Json]:
    """Parameters of the query, from schemas with descriptions by name."""
    return [
        query(name, each["description"], {key: value for key, value in each.items() if key != "description"})
        for name, each in members.items()
    ]


def header(name: str, description: str, schema: Json = STRING, example: Any = None, *, required: bool = False) -> Json:
    """A header of the request."""
    described = {"name": name, "in": "header", "description": description, "schema": schema}
    return _optional(described | ({"required": True} if required else {}), example)


def reference(kind: str, name: str) -> Json:
    """A reference to a part below `components`."""
    return {"$ref": f"#/components/{kind}/{name}"}


@functools.lru_cache(128)
def of(struct: type[Model]) -> Json:
    """The schema of an answer."""
    return json_schema.schema(struct)


def all_of(struct: type[Model]) -> Json:
    """The schema of an array of structs."""
    return array(of(struct))


def array(items: Json, **keywords: Any) -> Json:
    """The schema of an array."""
    return {"type": "array", "items": items, **keywords}


def _list(title: str, properties: Json, required: Iterable[str]) -> Json:
    return {"title": title, "type": "object", "properties": properties, "required": [*required]}


def listed(title: str, struct: type[Model]) -> Json:
    """The schema of a list, as a whole."""
    return _list(title, {"items": all_of(struct)}, ("items",))


def paged(title: str, struct: type[Model], *, required: bool = True) -> Json:
    """The schema of a page of a list, whose links may be absent unless they are required."""
    return _list(title, {"items": all_of(struct), "_links": of(Links)}, ("items", "_links") if required else ("items",))


def literal(name: str) -> Json:
    """The schema of a text that is one of the values that `literals` has for the name."""
    return {"title": name, "type": "string"}


def _optional(parameter: Json, example: Any) -> Json:
    return parameter if example is None else parameter | {"example": example}


def _media(schema: Json, example: Any) -> Json:
    return {"schema": schema} if example is None else {"schema": schema, "example": example}


PAGE = (
    query("limit", "How many items a page has.", INTEGER | {"minimum": 1, "maximum": 1000, "default": 20}, 20),
    query("offset", "How many items to leave out.", INTEGER | {"minimum": 0, "default": 0}, 0),
)
