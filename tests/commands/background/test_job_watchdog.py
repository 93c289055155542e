from rioni.commands.background.job_watchdog import SILENT_S, JobWatchdog
from tests.support.clock import ManualClock


def test_jobs_that_hang_are_told_from_those_that_are_done():
    """Reference operations#liveness."""
    clock, rounds = ManualClock(), []
    job_watchdog = JobWatchdog(clock)
    jobs = job_watchdog.watched(lambda: rounds.append(1))
    clock.advance(int(SILENT_S * 1_000) + 1)
    assert "restart" in job_watchdog.health().reason
    jobs()
    assert rounds == [1]
    assert job_watchdog.health().reason == ""


def test_a_mistake_in_a_job_does_not_keep_the_next_round_from_coming():
    def stumble() -> None:
        raise LookupError

    clock = ManualClock()
    job_watchdog = JobWatchdog(clock)
    jobs = job_watchdog.watched(stumble)
    clock.advance(int(SILENT_S * 1_000) + 1)
    jobs()
    assert job_watchdog.health().reason == ""
