"""Records of jobs: their reports are kept within bounds, and a job that stops reporting is noticed."""

import contextlib

import pytest

from rioni.commands.system.job_records import JobRecords
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Conflict
from rioni.domain.ports.host import direct
from rioni.domain.system.reports import (
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
from rioni.storage.embedded.expendable import EmbeddedJobs
from tests.support.clock import ManualClock


JANE, JOE = Subject(name="jane", realm="employees"), Subject(name="joe", realm="employees")
NAMESAKE = Subject(name="jane", realm="services")


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
    first = records.report("a", told(), JANE)
    clock.advance(5_000)
    second = records.report("a", told(done=3, total=7), JANE)
    assert second.started_at == first.started_at == first.updated_at < second.updated_at
    assert records.newest() == [second]


def test_a_job_that_is_silent_was_interrupted_until_it_tells_something_again(records, clock):
    records.report("a", told(), JANE)
    records.report("b", told(state=DONE), JANE)
    clock.advance(1_000 * SILENT_S)
    assert {job.id: job.state for job in records.newest()} == {"a": RUNNING, "b": DONE}
    clock.advance(1)
    assert {job.id: job.state for job in records.newest()} == {"a": INTERRUPTED, "b": DONE}
    records.report("a", told(), JANE)
    assert records.newest()[0].state == RUNNING


def test_the_job_of_another_client_or_kind_is_not_changed(records):
    kept = records.report("a", told(), JANE)
    for other in (JOE, NAMESAKE, Subject(name="jane")):
        with pytest.raises(Conflict):
            records.report("a", told(state=DONE), other)
    with pytest.raises(Conflict):
        records.report("a", told(kind=BACKUP), JANE)
    assert records.newest() == [kept]


def test_a_job_that_an_earlier_release_has_recorded_without_a_realm_goes_on(records):
    records.report("a", told(), Subject(name="jane"))
    assert records.report("a", told(state=DONE), JANE).realm == "employees"
    with pytest.raises(Conflict):
        records.report("a", told(), NAMESAKE)


def test_a_client_displaces_its_own_jobs_alone(records, clock):
    records.report("kept", told(), JOE)
    records.report("namesake's", told(), NAMESAKE)
    running = records.report("running", told(), JANE)
    for number in range(KEPT_PER_CLIENT_MAX + 5):
        clock.advance(1)
        running = records.report("running", told(done=number), JANE)
        records.report(str(number), told(state=DONE), JANE)
    ids = [job.id for job in records.newest(ARCHIVE)]
    assert len(ids) == KEPT_PER_CLIENT_MAX + 2
    assert {"kept", "namesake's", "running", str(KEPT_PER_CLIENT_MAX + 4)} <= {*ids}
    assert running.started_at < running.updated_at


def test_jobs_of_a_kind_are_bounded_and_leave_those_of_others(records, clock):
    records.report("backup", told(kind=BACKUP), Subject(name=""))
    for number in range(KEPT_MAX + 3):
        clock.advance(1)
        records.report(str(number), told(), Subject(name=f"client {number}"))
    assert [job.id for job in records.newest(ARCHIVE)] == [str(number) for number in range(KEPT_MAX + 2, 2, -1)]
    assert [job.id for job in records.newest(BACKUP)] == ["backup"]
