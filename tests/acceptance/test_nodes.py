"""`GET /nodes`: reference operations#nodes."""

import pytest

from tests.support.waiting import wait_until


pytestmark = pytest.mark.both_modes

WORKERS = 2
"""Worker processes in total: two of one server, or one on each of two nodes."""


def test_all_workers_of_all_nodes_report(client):
    def complete():
        items = client.get("/nodes").json()["items"]
        return items if sum(len(node["workers"]) for node in items) == WORKERS else None

    nodes = wait_until(complete)
    assert len({node["id"] for node in nodes}) == len(nodes)
    assert {node["version"] for node in nodes} == {client.get("/version").json()["version"]}
    for node in nodes:
        assert [each["number"] for each in node["workers"]] == [*range(node["configured_workers"])]
        assert {each["pid"] > 0 for each in node["workers"]} == {True}
        assert all(each["started_at"] <= each["reported_at"] for each in node["workers"])
        assert all(each["log_position"] > 0 and each["connections"] >= 0 for each in node["workers"])
    answer = client.get("/nodes")
    assert answer.headers["cache-control"] == "no-store"
