from rioni.commands.job_runner import SILENT_S, JobWatchdog
from tests.support.clock import ManualClock


def test_hanging_jobs_are_distinguished_from_finished_ones():
    """Reference operations#liveness."""
    clock, rounds = ManualClock(), []
    job_watchdog = JobWatchdog(clock)
    jobs = job_watchdog.watched(lambda: rounds.append(1))
    clock.advance(int(SILENT_S * 1_000) + 1)
    assert "restart" in job_watchdog.health().reason
    jobs()
    assert rounds == [1]
    assert job_watchdog.health().reason == ""


def test_an_error_in_a_job_does_not_prevent_the_next_run():
    def fail() -> None:
        raise LookupError

    clock = ManualClock()
    job_watchdog = JobWatchdog(clock)
    jobs = job_watchdog.watched(fail)
    clock.advance(int(SILENT_S * 1_000) + 1)
    jobs()
    assert job_watchdog.health().reason == ""
