"""Places go to clients in turn, and none is lost."""

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Overloaded
from rioni.installation.turns import Gate
from tests.support.waiting import WAIT_S


def waiting(turns, *clients):
    """Greenlets that wait for a place in this order; each notes when it has one."""
    got = []

    def wait(client):
        assert turns.wait(client, None)
        got.append(client)

    greenlets = [gevent.spawn(wait, client) for client in clients]
    gevent.sleep(0)
    assert turns.queued == len(clients)
    return got, greenlets


def test_a_client_that_asks_once_waits_for_one_turn_only():
    turns = Gate(1, 1_000, "The pool")
    assert turns.take_free("many")
    got, greenlets = waiting(turns, *["many"] * 50, "once")
    turns.leave("many")
    gevent.sleep(0)
    assert got == ["once"]
    gevent.killall(greenlets)


def test_clients_that_ask_for_many_share_the_places():
    turns = Gate(2, 1_000, "The pool")
    assert turns.take_free("a")
    assert turns.take_free("a")
    got, _ = waiting(turns, *"aaaaabbbbbccccc")
    holders, seen = ["a", "a"], 0
    while holders:
        turns.leave(holders.pop(0))
        gevent.sleep(0)
        holders += got[seen:]
        seen = len(got)
    assert sorted(got[:6]) == list("aabbcc")


@given(st.lists(st.tuples(st.sampled_from(["take", "wait", "release", "kill", "late"]), st.sampled_from("abc"))))
def test_no_place_is_lost(steps):  # noqa: C901 - one branch for each step
    places = 2
    turns, holders, waiters = Gate(places, 1_000, "The pool"), [], []

    def wait(client):
        if turns.wait(client, None):
            holders.append(client)

    for step, client in steps:
        match step:
            case "take":
                if turns.take_free(client):
                    holders.append(client)
            case "wait" if len(holders) == places:
                waiters.append(gevent.spawn(wait, client))
            case "late" if len(holders) == places:
                assert not turns.wait(client, 0)
            case "release" if holders:
                turns.leave(holders.pop(0))
            case "kill" if waiters:
                # It may have been granted a place that it could not take note of yet.
                waiters.pop(0).kill()
        gevent.sleep(0)
        gevent.sleep(0)
        assert len(holders) <= places
    while holders:
        turns.leave(holders.pop(0))
        gevent.sleep(0)
        gevent.sleep(0)
    assert turns.queued == 0
    assert all(turns.take_free("d") for _ in range(places))
    assert not turns.take_free("d")


def test_a_place_that_was_granted_to_a_greenlet_that_is_killed_goes_on():
    turns = Gate(1, 1_000, "The pool")
    assert turns.take_free("a")
    got, (first, _) = waiting(turns, "b", "c")
    first.kill(block=False)
    turns.leave("a")
    gevent.sleep(0)
    gevent.sleep(0)
    assert got == ["c"]


@pytest.mark.parametrize("wait_s", [0, 0.001])
def test_a_wait_has_a_limit(wait_s):
    turns = Gate(0, 1_000, "The pool")
    assert not turns.wait("a", wait_s)
    assert turns.queued == 0
    assert not turns._waiting


def test_a_client_that_floods_a_gate_leaves_room_for_others():
    gate = Gate(1, 8, "The login")
    refused, passed = [], []

    def come(client):
        try:
            gate.enter(client, WAIT_S)
        except Overloaded as ex:
            refused.append((client, str(ex)))
            return
        passed.append(client)
        gevent.sleep(0)
        gate.leave(client)

    greenlets = [gevent.spawn(come, "stranger") for _ in range(50)]
    gevent.sleep(0)
    greenlets.append(gevent.spawn(come, "user"))
    gevent.joinall(greenlets, timeout=WAIT_S)
    assert passed.index("user") <= 2
    assert {client for client, _ in refused} == {"stranger"}
    assert (len(refused), gate.rejected, gate.queued) == (45, 45, 0)
    assert refused[0][1] == "The login is busy with other requests of this client. Try again later."
