"""The audit log as a table is read from one log: pages of another one do not complete it."""

from urllib.parse import parse_qs, urlsplit

import pytest

from rioni.domain.errors import Unavailable
from rioni.spark.log_source import SCHEMA, LogReader
from rioni.spark.options import parse_options
from tests.support.scripted_server import Answer, scripted_server


def entry(position, recorded_at="2026-01-01T00:00:00.000Z", **changed):
    recorded = {"position": position, "recorded_at": recorded_at, "actor": "jane", "changes": []}
    return recorded | {"kind": "event-type.created", "resource": "event-type:orders"} | changed


def page(*entries, after=None):
    links = {} if after is None else {"next": {"href": f"/audit?after={after}&limit=1000"}}
    return Answer(body={"items": entries, "_links": links})


def positions(server):
    reader = LogReader(parse_options({"url": server.url, "retry_s": "30"}), SCHEMA.names)
    return [row["position"] for batch in reader.read(None) for row in batch.to_pylist()]


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr("rioni.client.retries.WAIT_FIRST_S", 0.001)


@pytest.fixture(scope="module")
def server():
    with scripted_server() as server:
        yield server


EMPTY_PAGES = [None, "9", "0", "20", "0"]


@pytest.mark.parametrize(
    ("answers", "read", "asked_after"),
    [
        ([page(entry(1), entry(2))], [1, 2], [None]),
        (["drop", page(entry(1), entry(2))], [1, 2], [None, None]),
        ([page(entry(1), entry(2), after=2), page(entry(3)), page(entry(2))], [1, 2, 3], [None, "2", "1"]),
        (
            [page(entry(1), after=9), page(after=20), page(entry(1)), page(), page(entry(1))],
            [1],
            [None, "9", "0", "20", "0"],
        ),
        ([page(after=9), page(entry(10))], [10], [None, "9"]),
    ],
)
def test_each_entry_comes_once(server, answers, read, asked_after):
    server.script(*answers)
    assert positions(server) == read
    assert [_after(each.path) for each in server.requests] == asked_after


def _after(path):
    return parse_qs(urlsplit(path).query).get("after", [None])[0]


@pytest.mark.parametrize(
    "then",
    [
        [entry(2, recorded_at="2026-01-02T00:00:00.000Z")],
        [entry(2, kind="event-type.deleted")],
        [entry(2, resource="event-type:others")],
        [entry(3)],
        [],
    ],
)
def test_another_log_in_its_place_ends_the_query(server, then):
    server.script(page(entry(1), entry(2), after=2), page(entry(3)), page(*then))
    with pytest.raises(Unavailable, match=r"entry 2 of the audit log is not the one that was read before.*restored"):
        positions(server)
