"""Operations answer as `/rights` has predicted, whichever check refuses them.

Source: reference authorization#own-rights. The requests are made in this process, see tests/support/ways.py.
"""

from contextlib import ExitStack
from itertools import product

import pytest

from tests.support.tokens import FULL_SCOPES
from tests.support.ways import (
    CONSUMER,
    ET,
    PRODUCER,
    READ_ONLY,
    REQUESTS,
    RIGHTS,
    WAYS,
    Request,
    uid_of,
    without,
    world,
)


ASKED = {str(way): way for way in WAYS if "?" not in way.path}
FIRST = {
    ("event_type", "READ"): "GET /event-types/{name}/events",
    ("event_type", "WRITE"): "POST /event-types/{name}/events",
    ("event_type", "ADMIN"): "PUT /event-types/{name}",
    ("subscription", "READ"): "POST /subscriptions/{subscription_id}/cursors",
    ("subscription", "STREAM"): "GET /subscriptions/{subscription_id}/events",
    ("subscription", "ADMIN"): "PUT /subscriptions/{subscription_id}",
    ("subscription", "REDRIVE"): "POST /subscriptions/{subscription_id}/dead-letters/redrive",
    ("broker", "READ"): "GET /settings/admins",
    ("broker", "WRITE"): "POST /settings/features",
    ("broker", "ADMIN"): "POST /settings/admins",
    ("broker", "HISTORY"): "GET /audit",
}
"""The operation that decides whether a right is listed."""
ALL = uid_of(RIGHTS)
USERS = [
    *(f"{uid_of(rights)}/all" for rights in (RIGHTS, frozenset(), *(without(right) for right in sorted(RIGHTS)))),
    f"{ALL}/namesake",
    # Without this one nobody gets an answer.
    *(f"{ALL}/not/{scope}" for scope in FULL_SCOPES if scope != "uid"),
    f"{ALL}/only/uid",
]
STATES = [
    *((user, {}) for user in USERS),
    *(
        (f"{ALL}/all", {"blacklist": [f"{side}_{entry}"]})
        for side, entry in product((PRODUCER, CONSUMER), (f"APP/{ALL}", f"APP/user:{ALL}", f"ET/{ET}"))
    ),
    (f"{ALL}/all", {"features": [READ_ONLY]}),
    (f"{ALL}/only/uid", {"features": [READ_ONLY], "blacklist": [f"{CONSUMER}_ET/{ET}"]}),
]
REFUSED = (401, 403, 503)


def told(broker, token, event_type=ET):
    """The answer of `/rights` to a client."""
    query = f"event_type={event_type}&subscription_id={broker.names['subscription_id']}"
    answer = broker.broker.ask("GET", f"/rights?{query}", token=token)
    assert answer.status == 200, answer
    return answer.json()


def compared(broker, token):
    """The ways that `/rights` reports as allowed, the ways that are in fact allowed, and the answers of `/rights`."""
    of = {event_type: told(broker, token, event_type) for event_type in {about(name) for name in ASKED} | {ET}}
    assert of[ET]["operations"].keys() == ASKED.keys()
    said = {name for name in ASKED if of[about(name)]["operations"][name] == "allowed"}
    return said, {name for name, way in ASKED.items() if broker.ask(way, token).status not in REFUSED}, of[ET]


def about(name):
    """The event type that a way is about."""
    return REQUESTS.get(name, Request()).event_type


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    with world(tmp_path_factory.mktemp("full"), "full") as full:
        yield full


@pytest.mark.parametrize(("token", "state"), STATES, ids=str)
def test_an_operation_is_allowed_exactly_if_the_rights_say_so(full, token, state):
    with ExitStack() as stack:
        full.spare()
        stack.enter_context(full.switched(state))
        said, may, rights = compared(full, token)
    assert said == may
    assert {(of, right) for of, right in FIRST if right in rights[of]} == {
        each for each, name in FIRST.items() if name in may
    }


def test_rights_say_what_refuses(full):
    publish, change = "POST /event-types/{name}/events", "PUT /event-types/{name}"
    for token, state, operation, expected in (
        (f"{ALL}/all", {}, publish, "allowed"),
        (f"{uid_of(frozenset())}/all", {}, publish, "right"),
        (f"{ALL}/only/uid", {}, publish, "scope"),
        (f"{ALL}/all", {"blacklist": [f"{PRODUCER}_ET/{ET}"]}, publish, "blacklist"),
        (f"{ALL}/all", {"features": [READ_ONLY]}, change, "read_only"),
    ):
        with full.switched(state):
            assert told(full, token)["operations"][operation] == expected


@pytest.mark.parametrize("mode", ["basic", "realm"])
def test_in_modes_without_scopes_auditors_are_told_that_they_create_nothing(tmp_path, mode):
    with world(tmp_path, mode) as other:
        for user in (f"{ALL}/all", f"{uid_of(without('broker WRITE'))}/all", f"{uid_of(frozenset())}/only/uid"):
            other.spare()
            said, may, _ = compared(other, user)
            assert said == may
            assert ("POST /event-types" in said) == ("broker.WRITE" in user or "HISTORY" not in user)


@pytest.mark.parametrize("state", [{}, {"features": [READ_ONLY]}, {"blacklist": [f"{PRODUCER}_ET/{ET}"]}], ids=str)
def test_without_authentication_what_is_switched_off_is_told_as_well(tmp_path, state):
    with world(tmp_path, "off") as free:
        free.spare()
        with free.switched(state):
            said, may, _ = compared(free, None)
    assert said == may
