import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rioni.domain.errors import Unavailable
from rioni.storage.clock import SystemClock
from rioni.storage.zookeeper.nodes import SLOTS
from rioni.storage.zookeeper.quota import CATCH_UP_SLOTS, ZooKeeperConnectionQuota
from tests.contracts.slots import ConnectionQuotaContract
from tests.storage.zookeeper.test_coordination_faults import expire
from tests.support.waiting import wait_until


pytestmark = pytest.mark.zookeeper


@pytest.fixture
def slots(this) -> ZooKeeperConnectionQuota:
    return ZooKeeperConnectionQuota(this.session, SystemClock())


class TestZooKeeperConnectionQuota(ConnectionQuotaContract):
    @pytest.fixture
    def slots(self, this) -> ZooKeeperConnectionQuota:
        return ZooKeeperConnectionQuota(this.session, SystemClock())

    @pytest.fixture
    def other(self, start) -> ZooKeeperConnectionQuota:
        return ZooKeeperConnectionQuota(start().session, SystemClock())


def test_slots_of_a_dead_process_are_free(slots, start):
    second = start()
    other = ZooKeeperConnectionQuota(second.session, SystemClock())
    assert other.acquire("one", {"a": 1}) == []
    assert slots.acquire("two", {"a": 1}) == ["a"]
    second.close()
    assert slots.acquire("three", {"a": 1}) == []


def test_nothing_is_left_behind(slots, this):
    slots.acquire("one", {"client\nname/with slash": 2, "b": 1})
    slots.acquire("two", {"client\nname/with slash": 2})
    slots.release("one")
    assert len(children(this, SLOTS)) == 1
    slots.release("two")
    assert children(this, SLOTS) == []


def test_a_slot_released_while_zookeeper_is_down_is_free_when_it_is_back(cut_off, slots):
    process, way = cut_off
    mine = ZooKeeperConnectionQuota(process.session, SystemClock())
    assert mine.acquire("one", {"a": 1}) == []
    way.cut()
    way.break_off()
    mine.release("one")
    way.heal()
    wait_until(lambda: slots.acquire("two", {"a": 1}) == [])


def test_a_slot_acquired_without_an_answer_is_free_again(cut_off, slots, this):
    process, way = cut_off
    mine = ZooKeeperConnectionQuota(process.session, SystemClock())
    way.cut_answer_to(process.session.worker.encode())
    with ThreadPoolExecutor() as pool:
        taken = pool.submit(mine.acquire, "one", {"a": 1})
        wait_until(lambda: children(this, SLOTS))
        way.break_off()
        with pytest.raises(Unavailable):
            taken.result()
    way.heal()
    wait_until(lambda: slots.acquire("two", {"a": 1}) == [])


def test_continuing_connections_are_counted_in_the_next_session_too(this, slots, start):
    kinds = {f"{number}": 1 for number in range(2 * CATCH_UP_SLOTS)}
    assert slots.acquire("one", kinds) == []
    worker = this.session.worker
    expire(this)
    wait_until(lambda: this.session.worker != worker and this.session.registered)

    def is_written() -> bool:
        nodes = [lambda client, path=f"{SLOTS}/{kind}": client.get_async(path) for kind in kinds]
        return all(this.session.worker.encode() in data for data, _ in this.session.request_with_retry(*nodes))

    wait_until(is_written)
    other = ZooKeeperConnectionQuota(start().session, SystemClock())
    assert other.acquire("two", kinds) == [*kinds]


def test_concurrent_acquisitions_get_exactly_the_available_slots(this, start):
    racers = [ZooKeeperConnectionQuota(each.session, SystemClock()) for each in (this, start())]
    outcomes: list[list[str]] = []

    def race(slots: ZooKeeperConnectionQuota, number: int) -> None:
        outcomes.append(list(slots.acquire(f"{number}", {"a": 7})))

    threads = [threading.Thread(target=race, args=(racers[n % 2], n)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [[]] * 7 + [["a"]] * 13


def children(process, path: str) -> list[str]:
    return process.session.request(lambda client: client.get_children_async(path))[0]
