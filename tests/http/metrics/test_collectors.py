"""The metrics, and the formats in which they are shown: reference operations#metrics."""

import errno
import json
import os

import falcon
import falcon.testing
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rioni.domain.errors import EventTypeNotFound, NotAcceptable
from rioni.http.answer_budget import AnswerBudget
from rioni.http.bodies.reading import BodyBudget
from rioni.http.metrics import shared_tables
from rioni.http.metrics.collectors import Metrics
from rioni.http.metrics.shared_tables import OTHERS, EventTypeCounts, claim_slot, release_slot
from rioni.http.middleware.requests import RequestMiddleware
from rioni.http.resources.monitoring import rendered_metrics


PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    Counter("x_answers", "Answers", ["status"], registry=registry).labels("200").inc(3)
    Gauge("x_open", "Open", registry=registry).set(1.5)
    Histogram("x_seconds", "Seconds", buckets=(1, 2), registry=registry).observe(1.5)
    return registry


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("*/*", "application/json"),
        ("", "application/json"),
        ("application/json", "application/json"),
        ("application/json, text/plain, */*", "application/json"),
        ("text/html, */*;q=0.8", "application/json"),
        ("application/*", "application/json"),
        ("text/plain", "text/plain"),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", "text/plain"),
        ("text/plain, */*", "text/plain"),
        ("text/plain;version=nonsense", "text/plain"),
        ("text/*", "text/plain"),
        ("application/openmetrics-text", "application/openmetrics-text"),
        (PROMETHEUS_3, "application/openmetrics-text"),
        ("application/json;q=0.1, text/plain", "text/plain"),
        ("text/plain;q=0, */*", "application/json"),
        (";;,/,", ""),
        ("image/png", ""),
    ],
)
def test_clients_that_accept_a_format_of_prometheus_get_it_and_all_others_json(registry, accept, media_type):
    """Reference operations#metrics-formats."""
    if not media_type:
        with pytest.raises(NotAcceptable, match="excludes them"):
            rendered_metrics(registry, accept)
        return
    body, content_type = rendered_metrics(registry, accept)
    assert content_type.partition(";")[0] == media_type
    if media_type == "application/json":
        assert json.loads(body)["counters"] == {'x_answers_total{status="200"}': {"count": 3}}
    elif media_type == "text/plain":
        assert b'x_answers_total{status="200"} 3.0' in body
    else:
        families = {family.name: family for family in text_string_to_metric_families(body.decode())}
        assert families.keys() == {"x_answers", "x_open", "x_seconds"}


def test_the_json_object_has_all_metrics(registry):
    """Reference operations#metrics-json."""
    body, _ = rendered_metrics(registry, "*/*")
    assert json.loads(body) == {
        "version": "4.0.0",
        "gauges": {"x_open": {"value": 1.5}},
        "counters": {'x_answers_total{status="200"}': {"count": 3}},
        "histograms": {"x_seconds": {"buckets": {"1.0": 0, "2.0": 1, "+Inf": 1}, "count": 1, "sum": 1.5}},
        "meters": {},
        "timers": {},
    }


def test_methods_that_clients_invent_share_one_label():
    """Reference operations#metric-series."""
    metrics = Metrics()
    middleware = RequestMiddleware(metrics, BodyBudget(), AnswerBudget())

    def series_after(begin, end):
        for number in range(begin, end):
            req = falcon.testing.create_req(method=f"M{number}X")
            req.context.started_at = 0.0
            middleware.process_response(req, falcon.Response(), None, True)
        return generate_latest(metrics.registry()).count(b"\n")

    few = series_after(0, 10)
    assert series_after(10, 2_000) == few
    assert b'method="OTHER",route="unknown",status="200"} 2000.0' in generate_latest(metrics.registry())


def counts_of(counts):
    return {
        (family.name.removeprefix("rioni_"), sample.labels["event_type"]): sample.value
        for family in counts.collect()
        for sample in family.samples
    }


def test_event_types_without_a_row_are_counted_together():
    """Reference operations#metric-series."""
    counts = EventTypeCounts(None, 0, 2)
    for name in ("a", "b", "c", "d", "a"):
        counts.add(name, events=1, refused=1)
    by_name = {"a": 2, "b": 1, OTHERS: 2}
    expected = {
        (metric, name): count for metric in ("published_events", "rejected_batches") for name, count in by_name.items()
    }
    assert counts_of(counts) == expected


def test_creating_and_deleting_event_types_leaves_no_counts_behind(tmp_path):
    existing = set()

    def find(name):
        if name not in existing:
            raise EventTypeNotFound(name)

    counts = EventTypeCounts(tmp_path, 0, 10)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    counts.add("stays", events=1)
    existing.add("stays")
    for number in range(5_000):
        existing.add(name := f"event-type-{number}")
        counts.add(name, events=1, bytes_=100, deleted=1, duplicates=1, refused=1)
        existing.remove(name)
        counts.forget_deleted(find)
    assert counts_of(counts) == {("published_events", "stays"): 1}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == size


def test_the_longest_name_is_not_truncated(tmp_path):
    counts = EventTypeCounts(tmp_path, 0, 2)
    counts.add("n" * 255, events=2**40)
    assert counts_of(counts) == {("published_events", "n" * 255): 2**40}


def test_counts_are_summed_over_processes_and_continued_by_the_next_one(tmp_path):
    one, other = (EventTypeCounts(tmp_path, slot, 10) for slot in (0, 1))
    one.add("a", events=1)
    other.add("a", events=2)
    other.add("b", deleted=3)
    assert counts_of(one) == counts_of(other) == {("published_events", "a"): 3, ("deleted_events", "b"): 3}
    successor = EventTypeCounts(tmp_path, 1, 10)
    successor.add("a", events=1)
    assert counts_of(one)["published_events", "a"] == 4


@pytest.fixture
def held_slots(monkeypatch):
    """The files of the slots of this process, which are free again after the test."""
    files = []
    monkeypatch.setattr(shared_tables, "_held", files)
    yield files
    for file in files:
        file.close()


@pytest.mark.usefixtures("held_slots")
def test_a_slot_is_free_again_when_its_process_has_died(tmp_path):
    held = claim_slot(tmp_path)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, bytes([claim_slot(tmp_path)]))
        (tmp_path / "gauge_livemax_1.db").touch()
        (tmp_path / "counter_1.db").touch()
        os._exit(0)
    assert (held, os.read(read, 1)) == (0, b"\x01")
    os.waitpid(child, 0)
    release_slot(tmp_path, child)
    assert {path.name for path in tmp_path.glob("*.db")} == {"counter_1.db"}
    assert claim_slot(tmp_path) == 1


def holes(path):
    """The bytes of a file for which the disk has no blocks."""
    return path.stat().st_size - 512 * path.stat().st_blocks


def test_tables_have_allocated_blocks_for_all_their_data(tmp_path):
    EventTypeCounts(tmp_path, 0, 1_000)
    assert holes(tmp_path / "event_types_0.table") <= 0


def test_on_a_full_disk_a_process_has_its_own_table(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    counts = EventTypeCounts(tmp_path, 1, 10)
    counts.add("a", events=3)
    # The others stumble over no empty file.
    assert [*tmp_path.iterdir()] == []


@pytest.mark.usefixtures("held_slots")
def test_a_worker_metrics_begin_with_allocated_files(tmp_path, monkeypatch):
    monkeypatch.setenv(shared_tables.MULTIPROCESS_FOLDER, str(tmp_path))
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setattr(values, "MmapedDict", values.MmapedDict)
    Metrics().requests.labels("GET", "/x", "200").inc()
    files = [*tmp_path.glob("*.db")]
    assert files
    assert all(holes(path) <= 0 for path in files)
