"""The only table from errors to statuses, and the problem body that answers them (registry contract 1.2, 1.3)."""

import secrets
import string
from http import HTTPStatus
from typing import Any

import falcon
import orjson
import structlog

from rioni.domain import errors


PROBLEM_JSON = "application/problem+json"

STATUSES: dict[type[errors.RioniError], HTTPStatus] = {
    errors.Malformed: HTTPStatus.BAD_REQUEST,
    errors.Denied: HTTPStatus.FORBIDDEN,
    errors.AdminOnly: HTTPStatus.FORBIDDEN,
    errors.Blocked: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.NotAcceptable: HTTPStatus.NOT_ACCEPTABLE,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.UnusableStart: HTTPStatus.PRECONDITION_FAILED,
    errors.Outdated: HTTPStatus.PRECONDITION_FAILED,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.TooMany: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Disabled: HTTPStatus.NOT_IMPLEMENTED,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Subclasses answer like their nearest base that stands here."""

_log = structlog.get_logger("rioni.http")


def status_of(error: errors.RioniError) -> HTTPStatus:
    """The status that answers an error."""
    return next(STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES)


def problem(status: HTTPStatus, detail: str = "", type_: str = "") -> bytes:
    """The body of a problem: title, status, and the members that there is something to say in."""
    body: dict[str, Any] = {"type": type_} if type_ else {}
    body |= {"title": _TITLES.get(status, status.phrase), "status": status.value}
    if detail:
        body["detail"] = detail
    return orjson.dumps(body)


_TITLES = {
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Entity",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Payload Too Large",
}
"""Reason phrases that Python's versions spell in different ways."""


def answer(resp: falcon.Response, status: HTTPStatus, detail: str = "", type_: str = "") -> None:
    """Make a response a problem."""
    resp.status = status.value
    resp.content_type = PROBLEM_JSON
    resp.data = problem(status, detail, type_)
    resp.stream = None


def on_rioni_error(_req: falcon.Request, resp: falcon.Response, ex: errors.RioniError, _params: Any) -> None:
    """Answer an error of the domain."""
    type_ = "http://httpstatus.es/422" if isinstance(ex, errors.InvalidFields) else ""
    answer(resp, status_of(ex), str(ex), type_)


def on_http_error(req: falcon.Request, resp: falcon.Response, ex: falcon.HTTPError, _params: Any) -> None:
    """Answer an error of the framework: an unknown path, a wrong verb."""
    status = HTTPStatus(ex.status_code)
    if ex.headers:
        resp.set_headers(ex.headers)
    details = {
        HTTPStatus.NOT_FOUND: f"No resource at {req.path}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"Request method '{req.method}' not supported",
    }
    answer(resp, status, details.get(status) or ex.description or ex.title or "")


def on_unexpected(req: falcon.Request, resp: falcon.Response, ex: Exception, _params: Any) -> None:
    """Answer our own mistake, under a number that the log names too."""
    number = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(24))
    _log.error("unexpected error", error_id=number, method=req.method, path=req.path, exc_info=ex)
    answer(
        resp,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        f"An internal error happened. Please report it. (ETI{number})",
    )
