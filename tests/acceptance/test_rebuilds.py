"""`/rebuilds`: how far rebuilds of the read models are (reference rebuilds)."""

from rioni.config.settings import Config
from rioni.installation.database import database_url
from rioni.projections.generations.rebuilds import DONE, RebuildPlan, begin
from rioni.sql.engines import open_engine
from tests.acceptance.conftest import problem
from tests.support.server import running_server


PLAN = RebuildPlan("green", ["states"], incremental=False, fold=1, upto=None, position=7, hash="00" * 32, tasks=2)


def test_the_progress_of_rebuilds_is_shown(tmp_path):
    """Reference rebuilds#listing-rebuilds."""
    with running_server(tmp_path / "data") as server, server.client() as client:
        assert client.get("/rebuilds").json() == {"items": []}
        problem(client.get("/rebuilds/none"), 404)
        engine = open_engine(database_url(Config(data=tmp_path / "data")))
        job = begin(engine, PLAN, lambda _: False)
        job.progress("fold", 3, 7)
        found = client.get(f"/rebuilds/{job.id}").json()
        assert client.get("/rebuilds").json() == {"items": [found]}
        assert found.pop("started_at") <= found.pop("updated_at")
        assert found == {
            "id": job.id,
            "state": "running",
            "phase": "fold",
            "done": 3,
            "total": 7,
            "detail": "",
            "into": "green",
            "tables": ["states"],
            "position": 7,
            "fold": 1,
        }
        job.finish(DONE, "7 entries, 0 differences")
        found = client.get(f"/rebuilds/{job.id}").json()
        assert (found["state"], found["detail"]) == ("done", "7 entries, 0 differences")
        engine.dispose()
