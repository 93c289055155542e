"""The overview, without scripts."""

from tests.support.waiting import wait_until


def test_the_overview_shows_nodes_health_and_changes(visitor, event_type):
    event_type("console.overview")
    data = wait_until(lambda: (found := visitor.get("/console?format=json").json())["nodes"]["items"] and found)
    (node,) = data["nodes"]["items"]
    assert node["configured_workers"] == len(node["workers"]) == 1
    assert data["ready"]["checks"]["database"]["status"] == "ok"
    assert [chart["title"] for chart in data["charts"]][:2] == ["Published", "Delivered"]
    page = visitor.get("/console").text
    assert f"{node['host']}:{node['port']}" in page
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
