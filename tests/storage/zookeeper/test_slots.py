import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rioni.domain.errors import Unavailable
from rioni.storage.clock import SystemClock
from rioni.storage.zookeeper.paths import SLOTS
from rioni.storage.zookeeper.slots import CATCH_UP_SLOTS, ZooKeeperSlots
from tests.contracts.slots import SlotsContract
from tests.storage.zookeeper.test_coordination_faults import expire
from tests.support.waiting import wait_until


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


def test_what_was_given_back_without_zookeeper_is_free_when_it_is_back(cut_off, slots):
    process, way = cut_off
    mine = ZooKeeperSlots(process.keeper, SystemClock())
    assert mine.take("one", {"a": 1}) == []
    way.cut()
    way.break_off()
    mine.give_back("one")
    way.heal()
    wait_until(lambda: slots.take("two", {"a": 1}) == [])


def test_what_was_taken_though_the_answer_was_lost_is_free_again(cut_off, slots, this):
    process, way = cut_off
    mine = ZooKeeperSlots(process.keeper, SystemClock())
    way.cut_answer_to(process.keeper.worker.encode())
    with ThreadPoolExecutor() as pool:
        taken = pool.submit(mine.take, "one", {"a": 1})
        wait_until(lambda: children(this, SLOTS))
        way.break_off()
        with pytest.raises(Unavailable):
            taken.result()
    way.heal()
    wait_until(lambda: slots.take("two", {"a": 1}) == [])


def test_what_goes_on_is_counted_in_the_next_session_too(this, slots, start):
    kinds = {f"{number}": 1 for number in range(2 * CATCH_UP_SLOTS)}
    assert slots.take("one", kinds) == []
    worker = this.keeper.worker
    expire(this)
    wait_until(lambda: this.keeper.worker != worker and this.keeper.registered)

    def is_written() -> bool:
        nodes = [lambda client, path=f"{SLOTS}/{kind}": client.get_async(path) for kind in kinds]
        return all(this.keeper.worker.encode() in data for data, _ in this.keeper.ask_patiently(*nodes))

    wait_until(is_written)
    other = ZooKeeperSlots(start().keeper, SystemClock())
    assert other.take("two", kinds) == [*kinds]


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
