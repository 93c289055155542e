"""The report of a load generator."""

import io
import json
import time

from rich.console import Console

from rioni.cli.broker.bench_runs import Report


def _report(latencies_s: list[float]) -> Report:
    report = Report("published", "requests")
    now = time.monotonic()
    for latency_s in latencies_s:
        report.add_answer(200, b"", now - latency_s)
        report.add_events(10, 1_000)
    # The clock runs while answers are added; only exact figures can be compared.
    report.latencies_s = latencies_s
    report.ended_s = report.started_s + 2
    return report


def test_the_figures_for_scripts_are_one_json_object():
    report = _report([number / 1_000 for number in range(1, 101)])
    report.add_answer(422, b'{"detail":"no"}', 0)
    assert json.loads(report.json()) == {
        "events": 1_000,
        "seconds": 2.0,
        "events_per_s": 500.0,
        "bytes_per_s": 50_000,
        "requests": 101,
        "p50_ms": 51.0,
        "p99_ms": 100.0,
        "max_ms": 100.0,
        "statuses": {"200": 100, "422": 1},
        "problem": '{"detail":"no"}',
    }


def _shown(report: Report) -> list[str]:
    text = io.StringIO()
    report.show(Console(file=text, width=200))
    return text.getvalue().splitlines()


def test_the_figures_for_people_have_a_histogram_that_counts_every_request():
    lines = _shown(_report([0.002] * 30 + [0.1] * 10))
    assert lines[0] == "400 events published in 2.00 s: 200 events/s, 0.0 MB/s"
    assert lines[1] == "40 requests: p50 2.00, p99 100.00, max 100.00 ms"
    assert [int(line.split()[-1]) for line in lines[2:]] == [30, 0, 0, 0, 0, 10]


def test_errors_are_counted_by_status_and_the_first_one_is_shown():
    report = Report("published", "requests")
    report.add_answer(503, b"busy", 0)
    report.add_answer(503, b"still busy", 0)
    report.add_answer(0, b"", 0)
    assert report.failed
    assert _shown(report)[1:] == [
        "1 requests without an answer",
        "2 requests answered 503",
        "The first of them: busy",
    ]
