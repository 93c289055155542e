"""The choice of the connection that ends when there are too many; all open ones are counted, and no others."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rioni.http.connection.timeouts import OpenConnections


CONNECTIONS_MAX = 6


class Connection:
    """The part of a connection that the code under test uses."""

    def __init__(self, address):
        self.address = address
        self.serves = False
        self.ended = False

    @property
    def waits(self):
        return not self.serves and not self.ended

    def stop_reading(self):
        self.ended = True


def opened(connections, *addresses):
    found = [Connection(address) for address in addresses]
    for each in found:
        connections.add(each, each.address)
    return found


def test_a_flood_from_one_address_ends_connections_of_that_address_the_oldest_first():
    connections = OpenConnections(CONNECTIONS_MAX)
    quiet, *flood = opened(connections, "quiet", *["flood"] * 10)
    assert not quiet.ended
    assert [each.ended for each in flood] == [True] * 5 + [False] * 5


def test_where_those_of_the_largest_address_are_all_served_others_make_room():
    connections = OpenConnections(CONNECTIONS_MAX)
    streams = opened(connections, *["streams"] * 4)
    for each in streams:
        each.serves = True
    idle = opened(connections, "idle", "idle")
    (newcomer,) = opened(connections, "newcomer")
    assert [each.ended for each in [*streams, *idle, newcomer]] == [False] * 4 + [True, False, False]


def test_an_address_takes_no_room_of_those_that_have_less():
    connections = OpenConnections(CONNECTIONS_MAX)
    streams = opened(connections, *["streams"] * 5)
    for each in streams:
        each.serves = True
    (idle,) = opened(connections, "idle")
    (another,) = opened(connections, "streams")
    assert (idle.ended, another.ended) == (False, True)


STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "serve", "wait", "close"]), st.integers(0, 3), st.integers(0, 30)), max_size=60
)
"""Steps: the action; the address, for `open`; and a number that chooses an open connection, for the others."""


@given(STEPS)
def test_whatever_happens_only_what_waits_is_ended_and_only_what_is_open_is_counted(steps):
    connections, there = OpenConnections(CONNECTIONS_MAX), []
    for what, address, number in steps:
        before = [each for each in there if not each.ended]
        served = {each for each in there if each.serves}
        if what == "open":
            there += opened(connections, f"address-{address}")
        elif there:
            each = there[number % len(there)]
            if what == "close":
                there.remove(each)
                connections.discard(each, each.address)
            else:
                each.serves = what == "serve" and not each.ended
        ended = [each for each in before if each.ended]
        assert len(ended) <= 1
        assert not served & {*ended}
        counts = {name: len([*of]) for name, of in itertools.groupby(sorted(each.address for each in there))}
        for each in ended:
            assert counts[each.address] >= counts[there[-1].address]
        assert {*connections} == {*there}
    for each in there:
        connections.discard(each, each.address)
    assert [*connections] == []
    assert connections.count == 0
