"""Records requests that are refused: without a valid token (401), or without the right (403)."""

from http import HTTPStatus
from typing import Any

import falcon

from rioni.commands.system.denied_requests import DeniedRequests
from rioni.domain.access.authorization import NOBODY
from rioni.http.caller import subject_of
from rioni.http.metrics.collectors import Metrics


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
