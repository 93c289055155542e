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


def test_changes_are_those_until_the_moment_that_is_shown(visitor, api, event_type):
    event_type("console.overview-moment")
    created = api.get("/audit", params={"resource": "event-type:console.overview-moment"}).json()["items"][0]
    event_type("console.overview-later")
    position = created["position"]
    for moment in (position, created["recorded_at"]):
        changes = visitor.get("/console", params={"as_of": moment, "format": "json"}).json()["changes"]["items"]
        assert created["position"] in [each["position"] for each in changes]
        assert all(each["recorded_at"] <= created["recorded_at"] for each in changes)
    assert changes[0]["position"] >= position


def worker(number, reported_s):
    """A worker, in the format of `GET /nodes`."""
    report = {
        "number": number,
        "reported_at": f"2026-01-01T00:00:{reported_s:02}Z",
        "started_at": "2026-01-01T00:00:00Z",
    }
    return {**report, "log_position": 7, "connections": 5, "streams": 3, "requests_per_second": 1.5}


def node(host, *workers):
    """A node that is configured to have two workers, in the format of `GET /nodes`."""
    return {"host": host, "port": 8080, "version": "0.1.1", "configured_workers": 2, "workers": [*workers]}


class ManyNodes:
    """Answers as a broker of three nodes: of one a worker is missing, of another one a worker is late."""

    def get(self, _path, **_params):
        return {"checks": {}}

    def attempt(self, path, **_params):
        if path != "/nodes":
            return {"problem": {"status": 503, "title": path, "detail": "no database"}}
        late, missing = node("late", worker(0, 5), worker(1, 30)), node("missing", worker(1, 30))
        return {"items": [node("good", worker(0, 11), worker(1, 30)), late, missing]}


def test_missing_and_silent_workers_are_told_at_their_node():
    visit = Visit(api=ManyNodes(), path={}, params={})
    page = rendered(OVERVIEW, visit, OVERVIEW.load(visit))
    assert "3 nodes, 5 of 6 workers" in page
    good, late, missing = page.split('<tr class="group">')[1:]
    assert ("good:8080" in good, "late:8080" in late, "missing:8080" in missing) == (True, True, True)
    assert "warning" not in good
    assert late.count(">warning<") == late.count("last report") == 1
    assert "1 of 2 workers missing" in missing


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
