"""Maps errors to HTTP statuses and problem bodies, in one table.

Source: reference common#problem-body, common#status-codes.
"""

import secrets
import string
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import falcon
import orjson
import structlog

from rioni.domain import errors
from rioni.http.streaming.server_sent_events import sends_refusal


PROBLEM_JSON = "application/problem+json"
X_PROBLEM_JSON = "application/x.problem+json"
AUTHENTICATION = "https://httpstatus.es/{}"
FIELDS = "http://httpstatus.es/422"
CONSTRAINTS = "https://zalando.github.io/problem/constraint-violation"

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The problem type for exceeded quotas from draft-ietf-httpapi-ratelimit-headers-10."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

STATUSES: dict[type[errors.RioniError], HTTPStatus] = {
    errors.Malformed: HTTPStatus.BAD_REQUEST,
    errors.InUse: HTTPStatus.BAD_REQUEST,
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.InsufficientToken: HTTPStatus.FORBIDDEN,
    errors.CrossSite: HTTPStatus.FORBIDDEN,
    errors.AccessDenied: HTTPStatus.FORBIDDEN,
    errors.AdminOnly: HTTPStatus.FORBIDDEN,
    errors.Blocked: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.NotAcceptable: HTTPStatus.NOT_ACCEPTABLE,
    errors.RequestTimeout: HTTPStatus.REQUEST_TIMEOUT,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.InvalidStartCursor: HTTPStatus.PRECONDITION_FAILED,
    errors.PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    errors.UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.ForeignHost: HTTPStatus.MISDIRECTED_REQUEST,
    errors.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.TooManyStreams: HTTPStatus.TOO_MANY_REQUESTS,
    errors.QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    errors.FeatureDisabled: HTTPStatus.NOT_IMPLEMENTED,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Statuses by error class; a subclass has that of its nearest base listed here."""

_log = structlog.get_logger("rioni.http")


def status_of(error: errors.RioniError) -> HTTPStatus:
    """The status that answers an error."""
    return next(STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES)


def problem(status: HTTPStatus, detail: str = "", type_: str = "", more: Mapping[str, Any] = NOTHING) -> bytes:
    """The body of a problem: title, status, and the further members that are not empty."""
    body: dict[str, Any] = {"type": type_} if type_ else {}
    body |= {"title": _TITLES.get(status, status.phrase), "status": status.value}
    if detail:
        body["detail"] = detail
    body.update(more)
    return orjson.dumps(body)


def _constraint_violation(error: errors.MissingFields) -> bytes:
    violations = [{"field": field, "message": message} for field, message in error.violations]
    status = HTTPStatus.BAD_REQUEST
    return orjson.dumps(
        {"type": CONSTRAINTS, "title": "Constraint Violation", "status": status.value, "violations": violations}
    )


def _more(error: errors.RioniError) -> Mapping[str, Any]:
    """Details as members, so that programs need not parse texts: exceeded quotas, the readable range of a cursor."""
    if isinstance(error, errors.QuotaExceeded):
        return {"violated-policies": error.quotas}
    cause = error.__cause__ if isinstance(error, errors.InvalidStartCursor) else error
    return cause.available if isinstance(cause, errors.UnavailableCursor) else NOTHING


def _type(error: errors.RioniError, status: HTTPStatus) -> str:
    match error:
        case errors.InvalidFields():
            return FIELDS
        case errors.QuotaExceeded():
            return QUOTA_EXCEEDED
        case errors.Unauthenticated() | errors.InsufficientToken() | errors.TokensUnavailable():
            return AUTHENTICATION.format(status.value)
        case _:
            return ""


def _challenge(error: errors.RioniError) -> str | None:
    """The header WWW-Authenticate (RFC 6750, chapter 3)."""
    match error:
        case errors.Unauthenticated(refused=refused):
            return 'Bearer realm="rioni"' + (', error="invalid_token"' if refused else "")
        case errors.InsufficientScope(scope=scope):
            return f'Bearer realm="rioni", error="insufficient_scope", scope="{scope}"'
        case errors.InsufficientToken():
            return 'Bearer realm="rioni", error="insufficient_scope"'
        case _:
            return None


_TITLES = {
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Entity",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Payload Too Large",
}
"""Reason phrases that Python's versions spell in different ways."""


def answer(req: falcon.Request, resp: falcon.Response, status: HTTPStatus, body: bytes) -> None:
    """Make a response a problem, of the older media type only if the client asks for that."""
    resp.status = status.value
    resp.content_type = X_PROBLEM_JSON if X_PROBLEM_JSON in req.accept else PROBLEM_JSON
    resp.data = body
    resp.stream = None


def on_rioni_error(req: falcon.Request, resp: falcon.Response, ex: errors.RioniError, _params: Any) -> None:
    """Answer an error of the domain."""
    status = status_of(ex)
    if isinstance(ex, errors.MissingFields):
        body = _constraint_violation(ex)
    else:
        body = problem(status, str(ex), _type(ex, status), _more(ex))
    if (challenge := _challenge(ex)) is not None:
        resp.set_header("WWW-Authenticate", challenge)
    if ex.retry_after_s is not None:
        resp.set_header("Retry-After", str(ex.retry_after_s))
    if not sends_refusal(req, resp, ex, body):
        answer(req, resp, status, body)


def on_http_error(req: falcon.Request, resp: falcon.Response, ex: falcon.HTTPError, _params: Any) -> None:
    """Answer an error of the framework: an unknown path, a wrong verb."""
    status = HTTPStatus(ex.status_code)
    if ex.headers:
        resp.set_headers(ex.headers)
    details = {
        HTTPStatus.NOT_FOUND: f"No resource at {req.root_path}{req.path}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"Request method '{req.method}' not supported",
    }
    answer(req, resp, status, problem(status, details.get(status) or ex.description or ex.title or ""))


def on_unexpected(req: falcon.Request, resp: falcon.Response, ex: Exception, _params: Any) -> None:
    """Answer an unexpected error, with an id that is logged too."""
    number = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(24))
    _log.error(
        "a request failed with an unexpected error; please report it",
        error_id=number,
        method=req.method,
        path=req.path,
        exc_info=ex,
    )
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    answer(req, resp, status, problem(status, f"An internal error happened. Please report it. (ETI{number})"))
