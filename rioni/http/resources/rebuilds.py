"""`/rebuilds`: the progress of rebuilds of the read models (reference rebuilds)."""

from typing import Any

import falcon
import orjson

from rioni.http.history import check_history
from rioni.http.resources.resource import Resource
from rioni.projections.generations import rebuilds
from rioni.projections.generations.generation import WORKING
from rioni.projections.generations.rebuilds import Rebuild


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
