"""`/nodes`: the nodes of the broker and their worker processes (reference operations#nodes)."""

from collections.abc import Sequence
from typing import Any

import falcon
import orjson

from rioni.domain.system.worker_reports import WorkerReport, current
from rioni.domain.timestamps import rfc3339
from rioni.http.resources.resource import Resource
from rioni.http.resources.settings import settings_for


class NodesResource(Resource):
    """All nodes."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show what the workers of each node have told last."""
        settings_for(req, self._dependencies)
        nodes = current(self._dependencies.coordinator.announced(), self._dependencies.clock.now_ms())
        resp.set_header("Cache-Control", "no-store")
        resp.data = orjson.dumps({"items": [_node(each) for each in nodes]})


def _node(workers: Sequence[WorkerReport]) -> dict[str, Any]:
    first = workers[0]
    return {
        "id": first.node,
        "host": first.host,
        "port": first.port,
        "version": first.version,
        "configured_workers": first.workers,
        "workers": [_worker(each) for each in workers],
    }


def _worker(report: WorkerReport) -> dict[str, Any]:
    return {
        "number": report.number,
        "pid": report.pid,
        "started_at": rfc3339(report.started_ms),
        "reported_at": rfc3339(report.reported_ms),
        "log_position": report.log_position,
        "connections": report.connections,
        "streams": report.streams,
        "requests_per_second": report.requests_per_s,
    }
