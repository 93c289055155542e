import threading

import pytest

from rioni.storage.clock import SystemClock
from rioni.storage.zookeeper.paths import SLOTS
from rioni.storage.zookeeper.slots import ZooKeeperSlots
from tests.contracts.slots import SlotsContract


pytestmark = pytest.mark.zookeeper


@pytest.fixture
def slots(this) -> ZooKeeperSlots:
    return ZooKeeperSlots(this.keeper, SystemClock())


class TestZooKeeperSlots(SlotsContract):
    @pytest.fixture
    def slots(self, this) -> ZooKeeperSlots:
        return ZooKeeperSlots(this.keeper, SystemClock())

    @pytest.fixture
    def other(self, start) -> ZooKeeperSlots:
        return ZooKeeperSlots(start().keeper, SystemClock())


def test_what_a_dead_process_holds_is_free(slots, start):
    second = start()
    other = ZooKeeperSlots(second.keeper, SystemClock())
    assert other.take("one", {"a": 1}) == []
    assert slots.take("two", {"a": 1}) == ["a"]
    second.close()
    assert slots.take("three", {"a": 1}) == []


def test_nothing_is_left_behind(slots, this):
    slots.take("one", {"client\nname/with slash": 2, "b": 1})
    slots.take("two", {"client\nname/with slash": 2})
    slots.give_back("one")
    assert len(children(this, SLOTS)) == 1
    slots.give_back("two")
    assert children(this, SLOTS) == []


def test_racers_get_as_many_as_there_are(this, start):
    racers = [ZooKeeperSlots(each.keeper, SystemClock()) for each in (this, start())]
    outcomes: list[list[str]] = []

    def race(slots: ZooKeeperSlots, number: int) -> None:
        outcomes.append(list(slots.take(f"{number}", {"a": 7})))

    threads = [threading.Thread(target=race, args=(racers[n % 2], n)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [[]] * 7 + [["a"]] * 13


def children(process, path: str) -> list[str]:
    return process.keeper.ask(lambda client: client.get_children_async(path))[0]
