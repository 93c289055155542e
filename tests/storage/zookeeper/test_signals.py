import pytest

from tests.contracts.coordination import A0, A1, A2, ALL, ENOUGH_S, name, offset
from tests.contracts.signals import SignalsContract


pytestmark = pytest.mark.zookeeper


class TestZooKeeperSignals(SignalsContract):
    """The signals of one machine work as without ZooKeeper."""


def test_streams_on_other_nodes_are_notified_of_every_change(coordinator, signals, start):
    subscription, stream, second = name(), name(), name()
    watch = signals.watch([f"subscription:{subscription}", f"stream:{stream}"])
    other = start().coordinator
    for change in (
        lambda: other.initialise(subscription, ALL),
        lambda: other.join(subscription, stream),
        lambda: other.join(subscription, second, [A0]),
        lambda: other.commit(subscription, stream, [(A0, offset(1))]),
        lambda: other.release(subscription, stream, A0),
        lambda: other.leave(subscription, stream),
        lambda: other.leave(subscription, second),
        lambda: other.reset(subscription, {A0: offset(0)}, 0),
        lambda: other.delete(subscription),
    ):
        change()
        assert watch.wait(ENOUGH_S)
    watch.close()


def test_every_commit_of_many_is_notified(coordinator, signals, start):
    subscription, stream = name(), name()
    other = start().coordinator
    other.initialise(subscription, ALL)
    other.join(subscription, stream)
    watch = signals.watch([f"subscription:{subscription}", f"stream:{stream}"])
    for position in range(100):
        assert other.commit(subscription, stream, [(A0, offset(position))]) == [True]
        while coordinator.cursors(subscription)[A0] != offset(position):
            assert watch.wait(ENOUGH_S)
    watch.close()


def test_a_closed_waiter_on_another_node_is_not_notified(signals, start):
    subscription = name()
    other = start().coordinator
    watch, witness = (signals.watch([f"subscription:{subscription}"]) for _ in range(2))
    watch.close()
    watch.close()
    other.initialise(subscription, ALL)
    assert witness.wait(ENOUGH_S)
    assert not watch.wait(0)
    witness.close()


def test_commits_joins_and_releases_wake_only_the_sessions_concerned(signals, start):
    subscription, stream, second, third = name(), name(), name(), name()
    other = start().coordinator
    other.initialise(subscription, ALL)
    other.join(subscription, stream, [A0])
    other.join(subscription, third, [A2])
    all_keys = [f"subscription:{subscription}", *(f"stream:{each}" for each in (stream, second, third))]
    witness, quiet = signals.watch(all_keys), signals.watch([f"subscription:{subscription}", f"stream:{third}"])
    for change in (
        lambda: other.commit(subscription, stream, [(A0, offset(1))]),
        lambda: other.join(subscription, second, [A1]),
        lambda: other.commit(subscription, second, [(A1, offset(1))]),
    ):
        change()
        assert witness.wait(ENOUGH_S)
    assert not quiet.wait(0)
    other.leave(subscription, second)
    for watch in (witness, quiet):
        assert watch.wait(ENOUGH_S)
        watch.close()
