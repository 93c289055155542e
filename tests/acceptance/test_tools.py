"""The tools that make requests for their users are refused by the same checks, and hand out or store nothing then.

Source: reference authorization#tools. The broker is in this process.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import uuid4

import pytest

from tests.acceptance.test_effects import ELSEWHERE
from tests.support.authorization_steps import watched_steps
from tests.support.refusals import refusals
from tests.support.served import served
from tests.support.tools import TOOLS, User
from tests.support.value_tables import rows_of
from tests.support.ways import (
    COMPACTED,
    ET,
    PEOPLE,
    REQUESTS,
    SUBSCRIPTION,
    WAYS,
    Request,
    Way,
    uid_of,
    world,
)


WAY = {str(way): way for way in WAYS}


class Row(NamedTuple):
    """A row of the reference's table of tools."""

    effect: str
    tool: str
    ways: Sequence[Way]
    """The requests that it makes."""
    spared: Collection[str]
    """Further ones, without which it does what it does."""


ROWS = {
    tool: Row(effect, tool, [WAY[each] for each in ways.split("`, `")], {spared} - {"none"})
    for effect, tool, ways, spared in rows_of("authorization", "Tools")
}
EACH = [
    pytest.param(name, number, id=f"{name}-{number}") for name, made in TOOLS.items() for number in range(len(made))
]

ASKED_AGAIN = ("SubscriptionEventsResource._stream: dependencies.access.blacklist",)
"""Steps without which a later one refuses the same request: they keep from clients what exists (test_effects.py)."""


class Used:
    """Tools at a broker."""

    def __init__(self, world, server):
        self.world, self.server = world, server
        self.begin_again()

    def __call__(self, name, number, token):
        """Run a tool; returns what it read or stored, and its error. `server.asked` has its requests."""
        self.server.asked.clear()
        try:
            return TOOLS[name][number](User(self.server.url, token, self.subscription)), None
        except Exception as ex:  # noqa: BLE001 - each has its own errors, and all of them are looked at
            return None, ex

    def begin_again(self):
        """Take a new subscription: a stream of the former may still be open, if its client may not close it."""
        body = {**SUBSCRIPTION, "read_from": "begin", "consumer_group": str(uuid4())}
        self.subscription = self._done("POST", "/subscriptions", body).json()["id"]
        cursor = {"event_type": ET, "partition": "0", "offset": "BEGIN"}
        self._done("PATCH", f"/subscriptions/{self.subscription}/cursors", {"items": [cursor]})

    def ways(self, *statuses):
        """The ways that the last use has gone, or those of them whose requests got one of these answers."""
        return {
            way
            for each in self.server.asked
            if not statuses or each.status in statuses
            for way in WAYS
            if way.was_gone(each.method, each.path)
        }

    def is_refused(self, name, number, case):
        """Whether a tool is refused with 401 or 403, and has or stores nothing; its error."""
        self.begin_again()
        before = self.stored()
        with self.world.switched(case.state):
            had, error = self(name, number, case.token)
        refused = had is None and re.search(r"\b40[13]\b", str(error)) and self.stored() == before
        return bool(refused), error

    def stored(self):
        """The data that tools might store or change."""
        ends = [self._done("GET", f"/event-types/{name}/partitions").json() for name in (ET, COMPACTED)]
        cursors = self._done("GET", f"/subscriptions/{self.subscription}/cursors").json()["items"]
        return [*ends, [each["offset"] for each in cursors]]

    def _done(self, method, target, body=None):
        answer = self.world.broker.ask(method, target, body, token=self.world.root)
        assert answer.status < 300, answer
        return answer


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    with world(tmp_path_factory.mktemp("full"), "full") as full, served(full.broker.app) as server:
        yield Used(full, server)


def cases(full, *ways):
    """Requests on these ways, each refused by one check. Host and origin are left out: the user does not set them."""
    for way in ways:
        headers = REQUESTS.get(str(way), Request()).headers
        yield from (case for case in refusals(full, way) if case.headers == headers)


def test_each_tool_has_a_row():
    assert ROWS.keys() == TOOLS.keys()
    assert {row.effect for row in ROWS.values()} <= {way.effect for way in WAYS}


@pytest.mark.parametrize(("name", "number"), EACH)
def test_a_tool_makes_the_requests_of_its_row_and_needs_no_other_right(used, name, number):
    row = ROWS[name]
    rights = frozenset().union(*(way.rights for way in row.ways))
    assert rights in PEOPLE
    used.begin_again()
    had, error = used(name, number, f"{uid_of(rights)}/all")
    assert error is None
    assert had
    assert {str(way) for way in used.ways()} == {*map(str, row.ways), *row.spared}
    assert row.effect in {way.effect for way in row.ways}


@pytest.mark.parametrize(("name", "number"), EACH)
def test_each_check_alone_refuses_each_tool(used, name, number):
    """The tool reports what the check answers to a request on a way of the tool's row."""
    row = ROWS[name]
    for case in cases(used.world, *row.ways):
        refused, error = used.is_refused(name, number, case)
        assert refused, (case, error)
        ways = used.ways(401, 403)
        assert {*map(str, ways)} <= {*map(str, row.ways), *row.spared}
        same = [each for each in cases(used.world, *ways) if each.what == case.what]
        said = [used.world.answer(each).json()["detail"] for each in same]
        assert any(each.replace(used.world.names["subscription_id"], used.subscription) in str(error) for each in said)


def test_no_request_of_a_tool_is_refused_any_more_if_its_check_is_taken_away(used):
    """Nothing but the checks of the ways refuses tools: each step that refuses a request of a tool is missed."""
    with watched_steps() as steps:
        other = re.compile("|".join((*ELSEWHERE, *ASKED_AGAIN)))
        elsewhere = {number for number, each in enumerate(steps.names) if other.search(each)}
        refused = {}
        for name in TOOLS:
            for case in cases(used.world, *ROWS[name].ways):
                steps.raised.clear()
                assert used.is_refused(name, 0, case)[0], case
                for number in steps.raised - elsewhere:
                    refused.setdefault(number, []).append((name, case, used.ways(401, 403)))
        unnoticed = {*refused}
        for steps.away, found in refused.items():
            for name, case, ways in found:
                used.is_refused(name, 0, case)
                if not ways <= used.ways(401, 403):
                    unnoticed.remove(steps.away)
                    break
        steps.away = None
    assert refused
    assert "\n".join(steps.names[number] for number in sorted(unnoticed)) == ""
