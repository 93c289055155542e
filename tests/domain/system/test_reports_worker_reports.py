from msgspec.structs import replace

from rioni.domain.system.reports import EXPIRED_S, WorkerReport, current, encoded


NOW_MS = 1_000_000
REPORT = WorkerReport(
    node="n1",
    host="a",
    port=8080,
    version="1",
    workers=2,
    number=0,
    pid=1,
    started_ms=1,
    reported_ms=NOW_MS,
    log_position=7,
    connections=1,
    streams=2,
    requests_per_s=0.5,
)


def told(*reports):
    return {str(number): encoded(each) for number, each in enumerate(reports)}


def test_workers_are_shown_by_node_and_number():
    second, other = replace(REPORT, number=1), replace(REPORT, node="n0", host="b")
    same_host = replace(REPORT, node="n3", port=8079)
    assert current(told(other, second, REPORT, same_host), NOW_MS) == [[same_host], [REPORT, second], [other]]


def test_what_was_told_too_long_ago_is_left_out():
    at_limit = NOW_MS + 1_000 * EXPIRED_S
    assert current(told(REPORT), at_limit) == [[REPORT]]
    assert current(told(REPORT), at_limit + 1) == []


def test_what_can_not_be_understood_is_left_out():
    strange = {"x": b"{}", "y": b"no JSON", "z": b'{"node":1}'}
    assert current({**strange, **told(REPORT)}, NOW_MS) == [[REPORT]]
