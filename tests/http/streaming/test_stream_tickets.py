"""Tickets of streams: how long they live, what they resume, and how many a client uses.

Source: reference streams#tickets.
"""

import pytest

from rioni.domain.errors import Invalid, TooManyStreams, Unauthenticated
from rioni.http.streaming.stream_tickets import LIFETIME_S, OPENED_MAX, RECONNECTS_S, RESUME_S, StreamTickets
from tests.support.clock import ManualClock


PATH = "/event-types/order.created/events"


class Slots:
    """The slots that all workers and nodes share."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def acquire(self, holder, slots):
        full = [slot for slot in slots if slot in self.held.values()]
        if not full:
            (self.held[holder],) = slots
        return full

    def release(self, holder):
        self.held.pop(holder, None)

    def close(self):
        pass


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def slots():
    return Slots()


@pytest.fixture
def worker(clock, slots):
    """Makes workers of one installation."""
    return lambda secret=b"secret": StreamTickets(lambda: secret, slots, clock)


@pytest.mark.parametrize(("after_s", "opens"), [(0, True), (LIFETIME_S, True), (LIFETIME_S + 0.001, False)])
def test_a_ticket_opens_its_stream_for_a_minute(worker, clock, after_s, opens):
    text, expires_at_ms = worker().issue(PATH, "token")
    assert expires_at_ms == clock.now_ms() + 1_000 * LIFETIME_S
    clock.advance(round(1_000 * after_s))
    if opens:
        ticket, resumes = worker().open(text, PATH, "")
        assert (ticket.path, ticket.token, resumes) == (PATH, "token", False)
    else:
        with pytest.raises(Unauthenticated):
            worker().open(text, PATH, "")


@pytest.mark.parametrize(
    ("id_after_s", "back_after_s", "resumes"),
    [
        (0, RESUME_S, True),
        (0, RESUME_S + 1, False),
        (RECONNECTS_S - 1, 1, True),
        (RECONNECTS_S - 1, 2, False),
    ],
)
def test_a_stream_is_resumed_for_a_day_by_an_id_of_the_last_minutes(worker, clock, id_after_s, back_after_s, resumes):
    text, _ = worker().issue(PATH, "token")
    ticket, _ = worker().open(text, PATH, "")
    clock.advance(1_000 * id_after_s)
    resume = worker().resume(ticket)
    clock.advance(1_000 * back_after_s)
    if resumes:
        assert worker().open(text, PATH, resume) == (ticket, True)
    else:
        with pytest.raises(Unauthenticated):
            worker().open(text, PATH, resume)


def test_an_id_resumes_no_other_ticket(worker, clock):
    first, second = (worker().issue(PATH, "token")[0] for _ in range(2))
    resume = worker().resume(worker().open(first, PATH, "")[0])
    assert worker().open(second, PATH, resume)[1] is False
    clock.advance(1_000 * LIFETIME_S + 1)
    with pytest.raises(Unauthenticated):
        worker().open(second, PATH, resume)


def test_other_installations_make_no_tickets(worker):
    text, _ = worker(b"another").issue(PATH, "token")
    with pytest.raises(Unauthenticated):
        worker().open(text, PATH, "")


def test_a_ticket_is_spent_on_all_workers(worker):
    ticket, _ = worker().open(worker().issue(PATH, "token")[0], PATH, "")
    worker().spend(ticket, "alice")
    with pytest.raises(Unauthenticated):
        worker().spend(ticket, "alice")


def test_what_was_spent_is_remembered_until_it_has_expired_for_all_clocks(worker, clock, slots):
    one = worker()
    ticket, _ = one.open(one.issue(PATH, "token")[0], PATH, "")
    one.spend(ticket, "alice")
    spent = set(slots.held)
    clock.advance(2_000 * LIFETIME_S)
    one.spend(one.open(one.issue(PATH, "token")[0], PATH, "")[0], "alice")
    assert spent < set(slots.held)
    clock.advance(1)
    one.spend(one.open(one.issue(PATH, "token")[0], PATH, "")[0], "alice")
    assert not spent & set(slots.held)


def test_the_tickets_that_a_client_uses_are_bounded(worker, clock):
    one = worker()

    def spend(client):
        one.spend(one.open(one.issue(PATH, "token")[0], PATH, "")[0], client)

    for _ in range(OPENED_MAX):
        spend("eve")
    with pytest.raises(TooManyStreams):
        spend("eve")
    spend("bob")
    clock.advance(2_000 * LIFETIME_S + 1)
    spend("eve")


def test_a_ticket_fits_into_a_request_line(worker):
    with pytest.raises(Invalid, match="too long"):
        worker().issue(PATH, "x" * 6_000)
