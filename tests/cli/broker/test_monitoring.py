"""`rioni monitoring`: the state of a broker for people and programs."""

import json

from tests.support.api_server import api_server
from tests.support.waiting import wait_until


def test_checks_are_a_table_and_the_exit_code_says_whether_one_fails(rioni):
    code, out, _ = rioni("monitoring", "ready")
    assert code == ("failed" in out)
    assert out.splitlines()[0].split() == ["check", "status", "detail"]
    assert "database" in out


def test_metrics_are_those_with_a_name(rioni):
    assert rioni("monitoring", "health")[0] == 0
    _, text, _ = rioni("monitoring", "metrics", "--name", "rioni_http_requests")
    assert "# TYPE rioni_http_requests_total counter" in text
    assert all("rioni_http_requests" in line for line in text.splitlines())
    assert rioni("monitoring", "metrics", "--name", "rioni_http_requets") == (0, "", "None found.\n")
    _, lines, _ = rioni("monitoring", "metrics", "--name", "rioni_http_requests", "--json")
    found = [json.loads(line) for line in lines.splitlines()]
    assert {each["kind"] for each in found} == {"counter"}
    assert all(each["name"].startswith("rioni_http_requests_total{") and each["count"] >= 1 for each in found)


def test_the_description_of_the_api_is_shown(rioni):
    assert json.loads(rioni("monitoring", "openapi")[1]) == json.loads(rioni("monitoring", "openapi", "--json")[1])
    assert "<html" in rioni("monitoring", "docs")[1]


def test_another_server_is_an_error_in_one_line(run):
    with api_server() as server:
        server.stream_status = 404
        code, out, err = run("monitoring", "version", "--url", server.url)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_the_history_is_shown_as_last_value_and_range_or_with_all_values(rioni, client):
    def found():
        client.monitoring.version()
        return rioni("monitoring", "history", "--name", "requests", "--json")[1]

    (line,) = wait_until(found).splitlines()
    series = json.loads(line)
    assert (series["name"], series["labels"]) == ("requests", {})
    assert len(series["times"]) == len(series["values"])
    code, out, _ = rioni("monitoring", "history", "--name", "requests", "--step", "60")
    assert code == 0
    assert "requests" in out
    assert "least" in out


def test_series_that_do_not_exist_are_an_error(rioni):
    code, _, err = rioni("monitoring", "history", "--name", "none")
    assert code == 2
    assert "published_events" in err


def test_each_worker_of_a_node_is_a_row(rioni, client):
    (node,) = wait_until(client.monitoring.nodes)
    code, out, _ = rioni("monitoring", "nodes")
    assert code == 0
    head, row = out.splitlines()
    assert head.split()[:3] == ["node", "version", "worker"]
    assert f"{node.host}:{node.port}" in row
    assert "1 of 1" in row
    line = json.loads(rioni("monitoring", "nodes", "--json")[1])
    assert line["workers"][0]["pid"] == node.workers[0].pid
