"""Records requests: for KPI events and the access log where enabled, and those that are refused (401, 403)."""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import falcon
import msgspec
import structlog

from rioni.commands.system.client_activity import DeniedRequests
from rioni.commands.system.kpis import UsageRecorder
from rioni.domain.access.authorization import NOBODY, is_anonymous
from rioni.domain.kpis import RequestServed
from rioni.domain.ports.host import Clock
from rioni.http.caller import subject_of
from rioni.http.metrics.collectors import Metrics
from rioni.http.streaming.stream_tickets import without_tickets


# --- Measures requests and streams for KPI events and the access log, if enabled ---
#
# Source: reference settings-and-storages#feature-effects, system-event-types#kpi-event-types.

NONE = "-"
"""Placeholder for a header that the client has not sent."""

SLO_SMALL_BYTES, SLO_MEDIUM_BYTES = 5_000, 50_000
SLO_BUCKETS = "<5K", "5K-50K", ">50K"

_log = structlog.get_logger("rioni.access")


def slo_bucket(body_bytes: int) -> str:
    """The class of publish requests whose latency is watched together (reference operations#latency-buckets)."""
    small, medium, large = SLO_BUCKETS
    if body_bytes < SLO_SMALL_BYTES:
        return small
    return medium if body_bytes <= SLO_MEDIUM_BYTES else large


class AccessMiddleware:
    """Logs every request, and streams when they begin, with status 102, and when they end.

    Requests of authenticated callers become KPI events.
    """

    def __init__(self, usage: UsageRecorder, clock: Clock) -> None:
        self._usage, self._clock = usage, clock

    def process_response(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        _resource: Any,
        _req_succeeded: bool,  # noqa: FBT001 - Falcon passes it by position
    ) -> None:
        """Report the request after all other middleware."""
        if not self._usage.access_on:
            return
        if req.method == "HEAD":
            self._report(req, resp.status_code, 0)
        elif resp.stream is None:
            self._report(req, resp.status_code, len(resp.data or resp.text or ""))
        else:
            self._write(req, self._accessed(req, HTTPStatus.PROCESSING.value, 0))
            resp.stream = _Counted(resp.stream, lambda size: self._report(req, resp.status_code, size))

    def _report(self, req: falcon.Request, status: int, response_bytes: int) -> None:
        measurement = self._accessed(req, status, response_bytes)
        self._write(req, measurement)
        if self._usage.on and subject_of(req) is not NOBODY:
            self._usage.accessed(measurement)

    def _accessed(self, req: falcon.Request, status: int, response_bytes: int) -> RequestServed:
        return RequestServed(
            at_ms=self._clock.now_ms(),
            flow_id=req.context.flow_id,
            method=req.method,
            path=req.path,
            query=f"?{without_tickets(req.query_string)}" if req.query_string else "",
            user_agent=req.user_agent or NONE,
            app=subject_of(req).name,
            status_code=status,
            response_time_ms=ms_spent(req),
            accept_encoding=req.get_header("Accept-Encoding") or NONE,
            content_encoding=req.get_header("Content-Encoding") or NONE,
            request_length=req.content_length or 0,
            response_length=response_bytes,
        )

    def _write(self, req: falcon.Request, measurement: RequestServed) -> None:
        members = msgspec.structs.asdict(measurement)
        del members["at_ms"]  # lines of the log have a time
        subject = subject_of(req)
        _log.info("request", **members, realm=subject.realm, authenticated=not is_anonymous(subject))


class _Counted:
    """The body of a streaming response, which reports its length when it ends, for any reason."""

    def __init__(self, pieces: Any, report: Callable[[int], None]) -> None:
        self._pieces, self._report, self._size, self._open = pieces, report, 0, True

    def __iter__(self) -> "_Counted":
        return self

    def __next__(self) -> bytes:
        piece: bytes = next(self._pieces)
        self._size += len(piece)
        return piece

    def close(self) -> None:
        """Close the stream below."""
        try:
            self._pieces.close()
        finally:
            if self._open:
                self._open = False
                self._report(self._size)


def ms_spent(req: falcon.Request) -> int:
    """Milliseconds since the request began."""
    started_at: float = req.context.started_at
    return round((time.monotonic() - started_at) * 1_000)


# --- Records requests that are refused: without a valid token (401), or without the right (403) ---

DENIED = frozenset((HTTPStatus.UNAUTHORIZED.value, HTTPStatus.FORBIDDEN.value))


class DenialMiddleware:
    """Counts refused requests, and keeps records of the newest ones."""

    def __init__(self, denied: DeniedRequests, metrics: Metrics) -> None:
        self._denied, self._metrics = denied, metrics

    def process_response(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        _resource: Any,
        _req_succeeded: bool,  # noqa: FBT001 - Falcon passes it by position
    ) -> None:
        """Look at the status of the answer."""
        if resp.status_code not in DENIED:
            return
        subject = subject_of(req)
        self._metrics.denied_requests.labels(str(resp.status_code)).inc()
        self._denied.record(
            resp.status_code,
            req.method,
            req.path,
            subject="" if subject is NOBODY else subject.key,
            address=req.remote_addr or "",
            user_agent=req.user_agent or "",
            flow_id=req.context.flow_id,
        )
