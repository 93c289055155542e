"""OpenAPI components that many operations share: headers, parameters, problems, ways to authenticate."""

from rioni.http.openapi.builders import PROBLEMS, STRING, Json, answer, literal, problem_name
from rioni.http.problems import PROBLEM_JSON
from rioni.wire.pages import Problem


def responses() -> Json:
    """A problem for each status."""
    return {problem_name(status): answer(text, Problem, media=PROBLEM_JSON) for status, text in PROBLEMS.items()}


HEADERS: Json = {
    "X-Flow-Id": {
        "description": "The flow id of the request, or a new one; it stands in the logs of the broker.",
        "required": True,
        "schema": STRING,
    },
    "span_ctx": {
        "description": "The span context of the request as a JSON object, empty if there is none.",
        "required": True,
        "schema": STRING,
    },
    "ETag": {"description": "Names this state of the resource.", "required": True, "schema": STRING},
    "Link": {"description": "The neighbours of the page, as RFC 8288 has it: `prev` and `next`.", "schema": STRING},
    "Warning": {
        "description": "What the client should know; absent if there is nothing, and with events that refuse a stream.",
        "schema": STRING,
    },
    "Location": {"description": "The path of the subscription.", "required": True, "schema": STRING},
    "Content-Location": {"description": "As `Location`.", "required": True, "schema": STRING},
    "X-Nakadi-StreamId": {
        "description": "The id of the stream, which commits name; absent with server-sent events that refuse one.",
        "schema": {"type": "string", "format": "uuid"},
    },
    "Content-Security-Policy": {"description": "What the page may load: nothing.", "required": True, "schema": STRING},
    "X-Content-Type-Options": {"description": "`nosniff`.", "required": True, "schema": STRING},
    "Referrer-Policy": {"description": "`no-referrer`.", "required": True, "schema": STRING},
    "Log-Position": {
        "description": "The position of the log that the answer is about; absent where none was asked for.",
        "schema": STRING,
    },
    "Cache-Control": {"description": "The answer is never kept.", "required": True, "schema": STRING},
}
PARAMETERS: Json = {
    "FlowId": {
        "name": "X-Flow-Id",
        "in": "header",
        "description": "Names the request in logs and in the metadata of its events: up to 200 printable characters.",
        "schema": STRING,
        "example": "checkout-4711",
    },
    "SpanContext": {
        "name": "span_ctx",
        "in": "header",
        "description": "The span that the request belongs to, as a JSON object of texts.",
        "schema": STRING,
        "example": '{"trace-id": "5a1b"}',
    },
    "ContentEncoding": {
        "name": "Content-Encoding",
        "in": "header",
        "description": "How the body is compressed, if it is.",
        "schema": literal("ContentEncoding"),
    },
}
SECURITY_SCHEMES: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Where the broker asks for one: the header `Authorization: Bearer …` with a token that one of "
        "its token sources accepts; see the manual on security.",
    },
}
