"""`/jobs`: archives and backups, and how far they are (reference jobs)."""

from uuid import UUID

import falcon
import msgspec

from rioni.domain.errors import Malformed
from rioni.domain.system.jobs import KINDS
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.history import check_history
from rioni.http.request_parsing import parsed
from rioni.http.resources.resource import Resource


class JobsResource(Resource):
    """The jobs that are remembered."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """All of them, or those of a kind; those first that have told something last."""
        check_history(req, self._dependencies)
        kind = req.get_param("kind")
        if kind is not None and kind not in KINDS:
            raise Malformed(f"kind: '{kind}' is none of {', '.join(KINDS)}")
        resp.data = msgspec.json.encode({"items": self._dependencies.jobs.newest(kind)})


class JobResource(Resource):
    """One job."""

    def on_put(self, req: falcon.Request, resp: falcon.Response, job_id: str) -> None:
        """Note what a job of the client tells of itself."""
        try:
            UUID(job_id)
        except ValueError:
            raise Malformed(f"'{job_id}' is not a UUID") from None
        report = parsed(parsing.job_report, read_json(req), self._dependencies)
        resp.data = msgspec.json.encode(self._dependencies.jobs.report(job_id, report, subject_of(req)))
