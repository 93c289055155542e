"""Common handling of every request and response: flow id, span context, content negotiation, metrics."""

import json
import time
from collections.abc import Mapping
from random import getrandbits
from typing import TYPE_CHECKING, Any

import falcon

from rioni.domain.errors import Malformed, NotAcceptable, UnsupportedMediaType
from rioni.domain.publishing.headers import span_context
from rioni.http.answer_budget import AnswerBudget, hold_answer
from rioni.http.answers import compress_answer
from rioni.http.bodies.reading import BodyBudget, let_go
from rioni.http.caller import ANONYMOUS, client_key
from rioni.http.metrics.collectors import Metrics
from rioni.http.problems import PROBLEM_JSON
from rioni.http.quotas import add_rate_limits


if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram


FLOW_ID_CHARACTERS_MAX = 200
FLOW_ID_CHARACTERS = 24
METHODS = frozenset(falcon.HTTP_METHODS)
OTHER_METHOD = "OTHER"
"""The label of all methods that HTTP does not define: clients may invent any number of them."""
ANY_MEDIA = frozenset(
    (
        "/event-types/{name}/events",
        "/event-types/{name}/deleted-events",
        "/subscriptions/{subscription_id}/events",
        "/health",
        "/livez",
        "/readyz",
        "/metrics",
        "/docs",
        "/audit",
    )
)
"""Routes that take bodies of any type, or answer something else than JSON (reference common#content-types)."""
OTHER_MEDIA = {
    "/log/checkpoint": falcon.MEDIA_TEXT,
    "/log/key": falcon.MEDIA_TEXT,
    "/log/tile/{level}/{rest:path}": "application/octet-stream",
}
"""Routes with one form of answers, which is not JSON: clients may ask for it, or for JSON as everywhere."""


class RequestMiddleware:
    """Gives every request a flow id and a span context, checks media types, and counts requests."""

    def __init__(self, metrics: Metrics, bodies: BodyBudget, answers: AnswerBudget) -> None:
        self._metrics, self._bodies, self._answers = metrics, bodies, answers
        self._counters: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Set the request's context before routing."""
        req.context.started_at = time.monotonic()
        req.context.caller = ANONYMOUS
        req.context.bodies = self._bodies
        req.context.flow_id = flow_id = _flow_id(req.env.get("HTTP_X_FLOW_ID"))
        resp.set_header("X-Flow-Id", flow_id)
        req.context.span_ctx = span_ctx = _span_ctx(req.env)
        resp.set_header("span_ctx", json.dumps(span_ctx) if span_ctx else "{}")
        if "\0" in req.path or "%00" in req.query_string:
            raise Malformed("Path and query must not contain the character U+0000")
        if "//" in req.path:
            raise Malformed(f"The path {req.path} contains an empty segment")
        if req.method == "PUT":
            _check_utf_8(req.env["PATH_INFO"])
        if req.method != "POST" and req.env.get("HTTP_CONTENT_ENCODING"):
            raise NotAcceptable(f"{req.method} method doesn't support gzip content encoding")

    def process_resource(self, req: falcon.Request, _resp: falcon.Response, _resource: Any, _params: Any) -> None:
        """Check the media types of body and answer before the responder."""
        if req.uri_template in ANY_MEDIA:
            return
        if req.content_type and not _is_json(req.content_type) and req.method not in ("GET", "HEAD", "DELETE"):
            raise UnsupportedMediaType(f"Content-Type '{req.content_type}' is not supported; send application/json")
        answered = OTHER_MEDIA.get(req.uri_template or "", falcon.MEDIA_JSON)
        if not any(map(req.client_accepts, (answered, falcon.MEDIA_JSON, PROBLEM_JSON))):
            raise NotAcceptable(f"Answers are {answered}, which the Accept header '{req.accept}' excludes")

    def process_response(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        _resource: Any,
        _req_succeeded: bool,  # noqa: FBT001 - Falcon passes it by position
    ) -> None:
        """Set response headers and update metrics after the responder."""
        let_go(req)
        add_rate_limits(req, resp)
        if resp.stream is None:
            compress_answer(req, resp)
            hold_answer(req, resp, self._answers, client_key)
        if req.method == "HEAD" and resp.stream is not None:
            if (close := getattr(resp.stream, "close", None)) is not None:
                close()
            # NOTE: not None, for which Falcon would answer with a length of zero.
            resp.stream = iter(())
        if (resp.data or resp.text) and resp.content_type is None:
            resp.content_type = falcon.MEDIA_JSON
        method = req.method if req.method in METHODS else OTHER_METHOD
        kind = method, req.uri_template or "unknown", str(resp.status)[:3]
        counters = self._counters.get(kind)
        if counters is None:
            # PERF: the library takes 5 us to find them. Their number is bounded: the labels of its metrics grow as this
            # does.
            metrics = self._metrics
            counters = self._counters[kind] = metrics.requests.labels(*kind), metrics.request_seconds.labels(*kind[:2])
        requests, seconds = counters
        requests.inc()
        if resp.stream is None:
            seconds.observe(time.monotonic() - req.context.started_at)


def _check_utf_8(path: str) -> None:
    """Refuse a path, as WSGI has it, in which Falcon would put U+FFFD: the name that is stored would be another one."""
    try:
        path.encode("latin-1").decode()
    except UnicodeDecodeError as ex:
        raise Malformed(f"The path must be UTF-8: {ex.reason}") from ex


def _span_ctx(environ: Mapping[str, Any]) -> Mapping[str, str] | None:
    # PERF: two look-ups in a dict for the many requests that carry none.
    if "HTTP_SPAN_CTX" not in environ and "HTTP_TRACEPARENT" not in environ:
        return None
    names = ("HTTP_SPAN_CTX", "HTTP_TRACEPARENT", "HTTP_TRACESTATE")
    return span_context(*(environ.get(name) for name in names)) or None


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == falcon.MEDIA_JSON or (media_type.startswith("application/") and media_type.endswith("+json"))


def _flow_id(sent: str | None) -> str:
    if sent and len(sent) <= FLOW_ID_CHARACTERS_MAX and sent.isascii() and sent.isprintable():
        return sent
    # PERF: 0.2 µs, and no system call, after which a thread waits for the interpreter: uuid4 took up to 8.
    return f"{getrandbits(4 * FLOW_ID_CHARACTERS):0{FLOW_ID_CHARACTERS}x}"
