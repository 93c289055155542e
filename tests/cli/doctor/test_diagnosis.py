import threading
from dataclasses import replace

import pytest

from rioni.cli.doctor.diagnosis import (
    Deadline,
    Missing,
    NotLookedAt,
    Scope,
    Site,
    check,
    error,
    gather,
    run,
    source,
    warning,
)
from rioni.client import Client
from rioni.client.errors import ClientError
from rioni.domain.errors import Invalid
from tests.support.waiting import WAIT_S


@source
def number(site):
    return 7


@source
def twice(site, number):
    return 2 * number


@source
def unwanted(site):
    raise NotLookedAt("not asked for", wanted=False)


@source
def above_unwanted(site, unwanted):
    raise AssertionError


@source
def broken(site):
    raise ZeroDivisionError("division by zero")


@check("Group", "error")
def sound(twice):
    """Whether it works."""
    if twice != 14:
        yield error("wrong", "repair it")


@check("Group", "error")
def worst(number):
    """The worst finding decides."""
    yield warning("a", "b")
    yield error("c", "d")


@check("Group")
def failing(number):
    """Whether it fails."""
    yield warning(f"{number / 0}", "")


@pytest.fixture(scope="module")
def site():
    with Client("http://127.0.0.1:1", attempts=1) as client:
        yield Site("http://127.0.0.1:1", client, Scope(), Deadline(60))


def test_facts_are_gathered_with_those_that_they_need(site):
    assert gather(site, [twice, number]) == {"twice": 14, "number": 7}


@pytest.mark.parametrize("ex", [Invalid("absent"), ClientError("absent"), NotLookedAt("absent")])
def test_what_can_not_be_gathered_has_a_reason(site, ex):
    @source
    def failed(site):
        raise ex

    assert gather(site, [failed]) == {"failed": Missing("absent")}


def test_a_source_that_breaks_does_not_keep_others_from_their_work(site):
    assert gather(site, [broken, number]) == {"broken": Missing("ZeroDivisionError: division by zero"), "number": 7}


def test_what_needs_a_missing_fact_is_missing_for_the_same_reason(site):
    facts = gather(site, [above_unwanted, unwanted])
    assert facts["above_unwanted"] == Missing("not asked for", wanted=False)


def test_what_hangs_is_left_out_at_the_deadline(site):
    release = threading.Event()

    @source
    def hanging(site):
        assert release.wait(WAIT_S)

    try:
        facts = gather(replace(site, deadline=Deadline(0.2)), [hanging, number])
    finally:
        release.set()
    assert facts["hanging"] == Missing("it did not answer in time")


def test_a_check_without_findings_is_ok():
    (result,) = run([sound], {"twice": 14})
    assert (result.check, result.group, result.status, result.looks_at) == ("sound", "Group", "ok", "Whether it works.")


def test_the_status_is_that_of_the_worst_finding():
    (result,) = run([worst], {"number": 7})
    assert result.status == "error"
    assert [each.severity for each in result.findings] == ["warning", "error"]


def test_a_check_whose_facts_are_missing_is_skipped():
    (result,) = run([sound], {"twice": Missing("no right", wanted=True)})
    assert (result.status, result.reason, result.wanted) == ("skipped", "no right", True)


def test_a_check_that_breaks_is_skipped():
    result, other = run([failing, worst], {"number": 7})
    assert (result.status, result.reason) == ("skipped", "the check has failed: ZeroDivisionError")
    assert other.status == "error"
