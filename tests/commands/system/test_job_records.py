"""What jobs report is remembered within bounds, and silence is noticed."""

import contextlib

import pytest

from rioni.commands.system.job_records import JobRecords
from rioni.domain.errors import Conflict
from rioni.domain.ports.thread_pool import direct
from rioni.domain.system.jobs import (
    ARCHIVE,
    BACKUP,
    DONE,
    INTERRUPTED,
    KEPT_MAX,
    KEPT_PER_CLIENT_MAX,
    RUNNING,
    SILENT_S,
    JobReport,
)
from rioni.storage.embedded.jobs import EmbeddedJobs
from tests.support.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock(now_ms=1_700_000_000_000)


@pytest.fixture
def records(tmp_path, clock):
    with contextlib.closing(EmbeddedJobs(tmp_path / "jobs.db")) as store:
        yield JobRecords(store, clock, direct)


def told(kind=ARCHIVE, state=RUNNING, **others):
    return JobReport(kind=kind, name="lake", state=state, **others)


def test_a_job_begins_with_its_first_report(records, clock):
    first = records.report("a", told(), "jane")
    clock.advance(5_000)
    second = records.report("a", told(done=3, total=7), "jane")
    assert second.started_at == first.started_at == first.updated_at < second.updated_at
    assert records.newest() == [second]


def test_a_job_that_is_silent_was_interrupted_until_it_tells_something_again(records, clock):
    records.report("a", told(), "jane")
    records.report("b", told(state=DONE), "jane")
    clock.advance(1_000 * SILENT_S)
    assert {job.id: job.state for job in records.newest()} == {"a": RUNNING, "b": DONE}
    clock.advance(1)
    assert {job.id: job.state for job in records.newest()} == {"a": INTERRUPTED, "b": DONE}
    records.report("a", told(), "jane")
    assert records.newest()[0].state == RUNNING


def test_the_job_of_another_client_or_kind_is_not_changed(records):
    kept = records.report("a", told(), "jane")
    with pytest.raises(Conflict):
        records.report("a", told(state=DONE), "joe")
    with pytest.raises(Conflict):
        records.report("a", told(kind=BACKUP), "jane")
    assert records.newest() == [kept]


def test_a_client_displaces_its_own_jobs_alone(records, clock):
    records.report("kept", told(), "joe")
    running = records.report("running", told(), "jane")
    for number in range(KEPT_PER_CLIENT_MAX + 5):
        clock.advance(1)
        running = records.report("running", told(done=number), "jane")
        records.report(str(number), told(state=DONE), "jane")
    ids = [job.id for job in records.newest(ARCHIVE)]
    assert len(ids) == KEPT_PER_CLIENT_MAX + 1
    assert {"kept", "running", str(KEPT_PER_CLIENT_MAX + 4)} <= {*ids}
    assert running.started_at < running.updated_at


def test_jobs_of_a_kind_are_bounded_and_leave_those_of_others(records, clock):
    records.report("backup", told(kind=BACKUP), "")
    for number in range(KEPT_MAX + 3):
        clock.advance(1)
        records.report(str(number), told(), f"client {number}")
    assert [job.id for job in records.newest(ARCHIVE)] == [str(number) for number in range(KEPT_MAX + 2, 2, -1)]
    assert [job.id for job in records.newest(BACKUP)] == ["backup"]
