"""A job tells what it does from a thread, and never waits for it, nor fails with it."""

import logging
import threading

import pytest

from rioni.cli import job_reporter
from rioni.cli.job_reporter import JobReporter
from rioni.domain.errors import Unavailable
from rioni.domain.system.reports import ARCHIVE, DETAIL_CHARACTERS_MAX, DONE, FAILED, RUNNING
from tests.support.waiting import WAIT_S, wait_until


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(job_reporter, "EVERY_S", 0.001)


def test_begin_progress_and_end_are_told():
    told = []
    with JobReporter(lambda job, report: told.append((job, report)), ARCHIVE, "lake") as job:
        wait_until(lambda: told)
        job.progress("orders", 3, 7)
        wait_until(lambda: told[-1][1].done == 3)
        job.note("3 events archived")
    assert len({job for job, _ in told}) == 1
    reports = [report for _, report in told]
    assert (reports[0].state, reports[0].name, reports[0].total) == (RUNNING, "lake", 0)
    last = reports[-1]
    assert (last.state, last.phase, last.done, last.total) == (DONE, "orders", 3, 7)
    assert last.detail == "3 events archived"


def test_a_failure_is_told_with_its_reason():
    told = []
    with pytest.raises(Unavailable), JobReporter(lambda _, report: told.append(report), ARCHIVE, "lake"):
        raise Unavailable("x" * 2 * DETAIL_CHARACTERS_MAX)
    assert (told[-1].state, len(told[-1].detail)) == (FAILED, DETAIL_CHARACTERS_MAX)


def test_what_does_not_change_is_told_again_as_a_heartbeat(monkeypatch):
    monkeypatch.setattr(job_reporter, "HEARTBEAT_S", 0.001)
    told = []
    with JobReporter(lambda _, report: told.append(report), ARCHIVE, "lake"):
        wait_until(lambda: len(told) >= 3)


def test_a_broker_that_refuses_is_named_once_and_the_job_goes_on(caplog):
    tries = []

    def refuse(_job, report):
        tries.append(report)
        raise Unavailable("no such path")

    with caplog.at_level(logging.WARNING, "rioni.jobs"), JobReporter(refuse, ARCHIVE, "lake") as job:
        wait_until(lambda: tries)
        job.progress("orders", 1, 2)
    assert [record.message for record in caplog.records] == [
        "The broker does not learn how far this job is: no such path"
    ]
    assert tries[-1].state == DONE


def test_a_broker_that_hangs_delays_the_end_for_a_bounded_time(monkeypatch):
    monkeypatch.setattr(job_reporter, "END_S", 0.01)
    hanging, released = threading.Event(), threading.Event()

    def hang(_job, _report):
        hanging.set()
        released.wait(WAIT_S)

    with JobReporter(hang, ARCHIVE, "lake"):
        assert hanging.wait(WAIT_S)
    assert not released.is_set()
    released.set()
