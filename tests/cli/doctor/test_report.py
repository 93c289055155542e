import json
import tarfile

import pytest

from rioni.cli.doctor import report
from rioni.cli.doctor.connection import Access
from rioni.cli.doctor.diagnosis import Missing, Result
from rioni.cli.doctor.disk import LogFile
from rioni.cli.doctor.metrics import MetricSamples, SampledSeries
from rioni.cli.doctor.shown import HIDDEN, Shown
from rioni.domain.errors import Invalid
from tests.storage.embedded.events.test_event_store_faults import file_size_limit


def written(tmp_path, facts):
    path = tmp_path / "bundle.tar.gz"
    facts = Shown().facts(facts)
    report.write_bundle(path, [Result("reachable", "Connection", "ok", "Whether.")], facts)
    with tarfile.open(path) as archive:
        return {each.name.partition("/")[2]: archive.extractfile(each).read() for each in archive.getmembers()}


def test_facts_are_files_and_missing_ones_are_left_out(tmp_path):
    facts = {
        "access": Access("0.1.1", "known secret"),
        "usage": Missing("no right"),
        "config": "never",
        "metrics": MetricSamples([SampledSeries("rioni_streams", {"api": "hila"}, 1, 1)], 3.0),
        "logs": [LogFile("b/rioni.log", "error: xyzzyplugh\n"), LogFile("a/rioni.log", "two\n")],
        "last_lines": ["never"],
    }
    files = written(tmp_path, facts)
    assert list(files) == [
        "results.jsonl",
        "access.json",
        "metrics.txt",
        "logs/1.log",
        "logs/2.log",
        "manifest.json",
    ]
    assert json.loads(files["access.json"])["broker"] == HIDDEN
    assert files["logs/1.log"] == f"error: {HIDDEN}\n".encode()


def test_long_files_are_cut_logs_at_their_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "FILE_BYTES_MAX", 15)
    facts = {
        "metrics": MetricSamples([SampledSeries("rioni_a", {}, 1, 1), SampledSeries("rioni_b", {}, 567890, 1)], 3.0),
        "logs": [LogFile("x", "first: log begins here")],
    }
    files = written(tmp_path, facts)
    assert (files["metrics.txt"], files["logs/1.log"]) == (b"rioni_a 1\n", b"log begins here")


def test_files_that_would_exceed_the_bound_are_named_in_the_manifest(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "BUNDLE_BYTES_MAX", 1_000)
    files = written(tmp_path, {"logs": [LogFile("long", "x\n" * 1_000), LogFile("short", "y\n")]})
    assert json.loads(files["manifest.json"])["left_out"] == ["logs/1.log"]
    assert files["logs/2.log"] == b"y\n"


def test_a_bundle_for_which_there_is_no_room_is_named_and_leaves_nothing(tmp_path):
    with file_size_limit(100), pytest.raises(Invalid, match=r"bundle\.tar\.gz can't be written: File too large"):
        written(tmp_path, {})
    assert list(tmp_path.iterdir()) == []
