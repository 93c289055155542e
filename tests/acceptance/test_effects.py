"""Each effect, and each way to it, as the reference lists them; and what happens if a check is taken away.

Source: reference authorization#effects-and-ways. The requests are made in this process, see tests/support/ways.py.
"""

import re
from dataclasses import replace
from itertools import product

import httpx
import pytest

from tests.console.conftest import Visitor
from tests.support.authorization_steps import watched_steps
from tests.support.in_process import HOST
from tests.support.refusals import further_refusals, refusals
from tests.support.routes import routed
from tests.support.waiting import WAIT_S
from tests.support.ways import CONSUMER, GONE, PRODUCER, READ_ONLY, REQUESTS, RIGHTS, WAYS, Request, uid_of, world


REFUSED = (401, 403, 421, 503)
EVERYTHING = f"{uid_of(RIGHTS)}/all"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    with world(tmp_path_factory.mktemp("full"), "full") as full:
        yield full


def status_of(way):
    """The status of the answer to who may."""
    return REQUESTS.get(str(way), Request()).status


def test_each_route_is_a_way_to_an_effect():
    ways = [str(way) for way in WAYS]
    assert len(ways) == len({*ways})
    assert {way.route for way in WAYS} == {*routed()}
    assert REQUESTS.keys() <= {*ways}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_exactly_the_named_rights_and_scope_are_enough(full, way):
    answer = full.ask(way, f"{uid_of(way.rights)}/only/{way.scope}" if way.scope else None)
    assert answer.status == status_of(way), answer
    if way.effect == "see what is gone":
        assert GONE in answer.text


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_each_check_alone_refuses_each_way(full, way):
    assert [str(case) for case in refusals(full, way) if not full.refuses(case)] == []


@pytest.mark.parametrize("way", [way for way in WAYS if way.method == "GET"], ids=str)
def test_the_head_of_an_answer_needs_what_the_answer_needs(full, way):
    cases = [replace(case, method="HEAD") for case in refusals(full, way)]
    cases = [case for case in cases if not case.hides and case.what != "from another site"]
    assert [str(case) for case in cases if not full.refuses(case)] == []


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_does_not_concern_a_way_does_not_change_its_answer(full, way):
    name = REQUESTS.get(str(way), Request()).event_type
    entries = [f"{side}_{kind}" for side, kind in product((PRODUCER, CONSUMER), ("APP", "ET")) if side not in way.sides]
    named = [f"{kind}/{uid_of(RIGHTS) if kind.endswith('APP') else name}" for kind in entries]
    features = [] if way.writes else [READ_ONLY]
    with full.switched({"blacklist": named, "features": features}):
        assert full.ask(way, EVERYTHING).status == status_of(way)


def test_further_checks_alone_refuse(full):
    assert [str(case) for case in further_refusals(full) if not full.refuses(case)] == []


@pytest.mark.parametrize("mode", ["basic", "realm"])
def test_in_other_modes_the_same_rights_are_asked_for(tmp_path, mode):
    with world(tmp_path, mode) as other:
        cases = [case for way in WAYS for case in refusals(other, way)] + [*further_refusals(other)]
        assert [str(case) for case in cases if not other.refuses(case)] == []
        assert [
            str(way) for way in WAYS if other.ask(way, f"{uid_of(way.rights)}/only/uid").status != status_of(way)
        ] == []


def test_while_authentication_is_off_everybody_may_do_everything(tmp_path):
    with world(tmp_path, "off") as free:
        assert [str(way) for way in WAYS if free.ask(way, None).status != status_of(way)] == []


_OWN = "the broker's own work, of no request"
_AGAIN = "the stream has asked for the same when it began"
_TIME = "asked again after 30 s: tests/http/middleware/test_authentication.py"
_EXPORT = "between the pages of an export: tests/http/resources/test_audit_export.py"
_HISTORY = "before it the right HISTORY was asked for, which is all that it decides on"
_LATER = "an iterator: what it does later are steps of their own"
ELSEWHERE = {
    "DeadLetterQueue.keep:": _OWN,
    "SubscriptionEventsResource.handle:": _OWN,
    "kpis.py": _OWN,
    r"system_events\.py (LogConsumers|_Follower)\.": _OWN,
    "SubscriptionEventsResource._end_former:": _AGAIN,
    "SubscriptionEventsResource._commit:": _AGAIN,
    "_stream: self._end_former": _AGAIN,
    "_stream: self._commit": _AGAIN,
    "_stream: self._dead_letters": _OWN,
    "_TokenCaller.is_expired": _TIME,
    "HttpClient.ended": _TIME,
    "AuditExport": _EXPORT,
    "_shown_settings: as_of": _HISTORY,
    "StoragesResource.on_get: as_of": _HISTORY,
    "StorageResource.on_get: as_of": _HISTORY,
    "TimelinesResource.on_get: as_of": _HISTORY,
    "DeadLetterRedriver.page: self._scan": _LATER,
    "_redrivable: self._scan": _LATER,
    "_scan: letters_in": _LATER,
    "Authentication.caller: raise Unauthenticated$": "the next line refuses as well, with another text",
    r"StreamTickets.open: raise .* \(2\)": "an old ticket: tests/http/streaming/test_stream_tickets.py",
    "Authentication.holder: self._info": "a token that was revoked meanwhile: tests/acceptance/test_stream_tickets.py",
    "is_auditor": "who is one may do less, not more: each step behind it is missed",
    r"permits\(section.admins": "those whom it lets relax a mode are the only ones who get here, but for those who may",
    r"_dispatch_with_retries: .* \(2\)": "the same call, in the first attempt and in the last",
}
"""Steps that no request of the table can miss, with the reason."""


def test_each_step_of_a_check_is_missed_if_it_is_taken_away(tmp_path):
    with watched_steps() as steps:
        places = {
            name: [number for number, each in enumerate(steps.names) if re.search(name, each)] for name in ELSEWHERE
        }
        assert [name for name, found in places.items() if not found] == []
        unnoticed = {*range(len(steps.names))}.difference(*places.values())
        for mode in ("full", "basic", "realm"):
            (tmp_path / mode).mkdir()
            with world(tmp_path / mode, mode) as watched:
                unnoticed -= noticed(steps, watched, unnoticed)
        assert "\n".join(steps.names[number] for number in sorted(unnoticed)) == ""


def noticed(steps, watched, wanted):
    """The steps of `wanted` that are needed: without one of them, some request is no longer refused."""
    found, passing = set(), {}
    cases = [*further_refusals(watched)]
    if watched.mode == "full":
        cases += [case for way in WAYS for case in refusals(watched, way)]
    elif watched.mode == "realm":
        cases += [case for case in refusals(watched, WAYS[0]) if case.what == "of another realm"]
    for case in cases:
        steps.seen.clear()
        assert watched.refuses(case), case
        for number in steps.seen & wanted:
            passing.setdefault(number, []).append(case)
    for number, asked in passing.items():
        steps.away = number
        # A stream that is read takes a second.
        if not all(watched.refuses(case) for case in sorted(asked, key=lambda case: case.is_read)):
            found.add(number)
        steps.away = None
    return found


class _Visitor(Visitor):
    """A browser without scripts, at a broker in this process."""

    def __init__(self, app):
        transport = httpx.WSGITransport(app=app)
        self.http = httpx.Client(
            base_url=f"http://{HOST}", headers={"Accept": "text/html"}, transport=transport, timeout=WAIT_S
        )


@pytest.mark.parametrize("way", [way for way in WAYS if way.method == "GET" and way.scope], ids=str)
def test_the_console_is_no_other_way_past_a_check(full, way):
    for case in refusals(full, way):
        if case.what.startswith("without"):
            with _Visitor(full.broker.app) as visitor:
                if visitor.log_in(case.token).status_code != 303:
                    # A token without the scope `uid` can't log in at all.
                    assert case.what == "without the scope uid"
                    continue
                answer = visitor.get("/console/api" + case.target)
                assert case.hides not in answer.text if case.hides else answer.status_code == 403, case
