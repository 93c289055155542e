"""The overview, without scripts."""

from rioni.console.api import ApiProblem
from rioni.console.pages.overview import OVERVIEW
from rioni.console.pages.page import Visit
from tests.console.shown import rendered
from tests.support.waiting import wait_until


CHECKS = {"kafka": {"status": "failed", "reason": "no broker answers"}, "disk": {"status": "ok"}}


def test_the_overview_shows_nodes_health_and_changes(visitor, event_type, mode):
    event_type("console.overview")
    count = {"embedded": 1, "cluster": 2}[mode]

    def with_all_nodes():
        data = visitor.get("/console?format=json").json()
        return data if len(data["nodes"]["items"]) == count else None

    data = wait_until(with_all_nodes)
    for node in data["nodes"]["items"]:
        assert node["configured_workers"] == len(node["workers"]) == 1
    assert data["ready"]["checks"]["database"]["status"] == "ok"
    assert [chart["title"] for chart in data["charts"]][:2] == ["Published", "Delivered"]
    page = visitor.get("/console").text
    assert all(f"{node['host']}:{node['port']}" in page for node in data["nodes"]["items"])
    assert "event-type:console.overview" in page


def test_what_was_has_no_charts(visitor, event_type):
    event_type("console.overview-past")
    data = visitor.get("/console?format=json&as_of=1").json()
    assert (data["charts"], data["lagging"], data["busiest"]) == ([], [], [])
    assert "<figure" not in visitor.get("/console?as_of=1").text


def test_who_may_not_see_the_nodes_is_told_so(guest):
    assert guest.log_in("token-of-a-reader").status_code == 303
    page = guest.get("/console").text
    assert "You may not see the nodes" in page
    assert "<figure" in page


class NotReady:
    """Answers as a broker of which a dependency fails."""

    def get(self, path, **_params):
        assert path == "/readyz"
        raise ApiProblem(503, {"status": "failed", "checks": CHECKS})

    def attempt(self, path, **_params):
        return {"problem": {"status": 503, "title": path, "detail": "no database"}}


def test_a_check_that_fails_is_named_first():
    visit = Visit(api=NotReady(), path={}, params={})
    data = OVERVIEW.load(visit)
    assert data["ready"]["checks"] == CHECKS
    page = rendered(OVERVIEW, visit, data)
    assert '<p class="banner failed"><strong>kafka</strong> no broker answers</p>' in page
    for what in ("The rates", "The nodes", "The history"):
        assert f"{what} can't be shown" in page
