import itertools

import pytest
from structlog.testing import capture_logs

from rioni.commands.job_runner import LoggedJobRunner
from rioni.domain.errors import Unavailable


def fails_with(*errors):
    """A job that fails with these errors, one after the other; None is success."""
    left = list(errors)

    def job():
        if (error := left.pop(0)) is not None:
            raise error

    return job


@pytest.mark.parametrize(
    ("errors", "reasons"),
    [
        ([None, None], []),
        ([Unavailable("away")] * 3, ["away"]),
        ([Unavailable("away"), Unavailable("gone"), Unavailable("away")], ["away", "gone", "away"]),
        ([Unavailable("away"), None, Unavailable("away")], ["away", "away"]),
    ],
    ids=["success", "the same failure", "other failures", "success in between"],
)
def test_a_failure_is_logged_once_for_as_long_as_it_lasts(errors, reasons):
    attempts, job = LoggedJobRunner(), fails_with(*errors)
    with capture_logs() as lines:
        for _ in errors:
            attempts.run("a job", job)
    failures = [line for line in lines if line["log_level"] == "error"]
    assert [(line["job"], line["reason"]) for line in failures] == [("a job", reason) for reason in reasons]
    again = [line for line in lines if line["event"] == "works again"]
    assert len(again) == sum(bool(error) and not after for error, after in itertools.pairwise(errors))


def test_jobs_fail_independently():
    attempts = LoggedJobRunner()
    with capture_logs() as lines:
        for what in ("one", "two", "one"):
            attempts.run(what, fails_with(Unavailable(f"{what} is away")))
    assert [line["job"] for line in lines] == ["one", "two"]


@pytest.mark.parametrize(("error", "traceback"), [(Unavailable("away"), False), (KeyError("ours"), True)])
def test_only_internal_errors_are_logged_with_a_traceback(error, traceback):
    with capture_logs() as lines:
        LoggedJobRunner().run("a job", fails_with(error))
    assert [bool(line["exc_info"]) for line in lines] == [traceback]
