"""`/jobs` and `/rebuilds`: archives, backups and rebuilds, and how far they are (reference jobs, rebuilds)."""

from typing import Any
from uuid import UUID

import falcon
import msgspec
import orjson

from rioni.domain.errors import Malformed
from rioni.domain.system.reports import KINDS
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.dependencies import Resource
from rioni.http.request_parsing import check_history, parsed
from rioni.projections.generations import rebuilds
from rioni.projections.generations.generation import WORKING
from rioni.projections.generations.rebuilds import Rebuild


# --- `/jobs`: archives and backups, and their progress (reference jobs) ---


class JobsResource(Resource):
    """The jobs that are remembered."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List all jobs, or those of a kind, the last ones to report first."""
        check_history(req, self._dependencies)
        kind = req.get_param("kind")
        if kind is not None and kind not in KINDS:
            raise Malformed(f"kind: '{kind}' is none of {', '.join(KINDS)}")
        resp.data = msgspec.json.encode({"items": self._dependencies.jobs.newest(kind)})


class JobResource(Resource):
    """One job."""

    def on_put(self, req: falcon.Request, resp: falcon.Response, job_id: str) -> None:
        """Record the report of a job of the client."""
        try:
            UUID(job_id)
        except ValueError:
            raise Malformed(f"'{job_id}' is not a UUID") from None
        report = parsed(parsing.job_report, read_json(req), self._dependencies)
        resp.data = msgspec.json.encode(self._dependencies.jobs.report(job_id, report, subject_of(req)))


# --- `/rebuilds`: the progress of rebuilds of the read models (reference rebuilds) ---


class RebuildsResource(Resource):
    """The rebuilds that are remembered."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """All of them, newest first."""
        check_history(req, self._dependencies)
        resp.data = orjson.dumps({"items": [_shown(each) for each in self._dependencies.query(rebuilds.newest)]})


class RebuildResource(Resource):
    """One rebuild."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, rebuild_id: str) -> None:
        """How far it is, or how it ended."""
        check_history(req, self._dependencies)
        resp.data = orjson.dumps(_shown(self._dependencies.query(rebuilds.find, rebuild_id)))


def _shown(rebuild: Rebuild) -> dict[str, Any]:
    plan = rebuild.plan
    return {
        "id": rebuild.id,
        "state": rebuild.state,
        "started_at": rebuild.started_at,
        "updated_at": rebuild.updated_at,
        "phase": rebuild.phase,
        "done": rebuild.done,
        "total": rebuild.total,
        "detail": rebuild.detail,
        "into": None if plan.generation == WORKING else plan.generation,
        "tables": plan.tables,
        "position": plan.position,
        "fold": plan.fold,
    }
