"""The audit log as a table is read from one log: what a broken connection leaves is not completed from another one."""

import json

import pytest

from rioni.domain.errors import Unavailable
from rioni.spark.log_source import SCHEMA, LogReader
from rioni.spark.options import parse_options
from tests.support.scripted_server import Answer, scripted_server


CUT = b'{"position": '


def entry(position, recorded_at="2026-01-01T00:00:00.000Z", **changed):
    recorded = {"position": position, "recorded_at": recorded_at, "actor": "jane", "changes": []}
    return recorded | {"kind": "event-type.created", "resource": "event-type:orders"} | changed


def lines(*entries, end=b""):
    return Answer(body=b"".join(json.dumps(each).encode() + b"\n" for each in entries) + end)


def page(*entries, after):
    return lines(*entries, {"_links": {"next": {"href": f"/audit?after={after}"}}})


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


BROKEN = lines(entry(1), entry(2), end=CUT)


@pytest.mark.parametrize(
    ("answers", "read", "asked_after"),
    [
        ([lines(entry(1), entry(2))], [1, 2], [None]),
        ([BROKEN, lines(entry(2), entry(3))], [1, 2, 3], [None, "1"]),
        ([BROKEN, lines(entry(2))], [1, 2], [None, "1"]),
        ([BROKEN, lines(end=CUT), lines(entry(2), entry(3))], [1, 2, 3], [None, "1", "1"]),
        ([BROKEN, lines(entry(2), entry(3), end=CUT), lines(entry(3))], [1, 2, 3], [None, "1", "2"]),
        ([page(entry(1), entry(2), after=2), lines(entry(3))], [1, 2, 3], [None, "2"]),
        ([page(entry(1), after=9), lines(end=CUT), page(entry(1), after=9), lines()], [1], [None, "9", "0", "9"]),
    ],
)
def test_each_entry_comes_once(server, answers, read, asked_after):
    server.script(*answers)
    assert positions(server) == read
    assert [_after(each.path) for each in server.requests] == asked_after


def _after(path):
    return path.partition("after=")[2] or None


@pytest.mark.parametrize(
    "then",
    [
        lines(entry(2, recorded_at="2026-01-02T00:00:00.000Z"), entry(3)),
        lines(entry(2, kind="event-type.deleted"), entry(3)),
        lines(entry(2, resource="event-type:others"), entry(3)),
        lines(entry(3)),
        lines(),
        page(after=9),
    ],
)
def test_another_log_in_its_place_ends_the_query(server, then):
    server.script(BROKEN, then)
    with pytest.raises(Unavailable, match=r"entry 2 of the audit log is not the one that was read before.*restored"):
        positions(server)
