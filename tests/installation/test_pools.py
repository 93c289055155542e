"""Pools of native threads: bounds, deadlines, and calls from one pool to another."""

import threading

import gevent
import pytest

from rioni.domain.errors import NotFound, OutcomeUnknown, Overloaded
from rioni.domain.ports.host import CLIENT
from rioni.installation.pools import KINDS, STORAGES_MAX, Pool, PoolLimits, Pools
from tests.support.waiting import WAIT_S, wait_until


PATIENCE_S = 20


class Gate:
    """Blocks threads of a pool until it is opened."""

    def __init__(self):
        self._open = threading.Event()
        self.entered = self.passed = 0

    def pass_through(self):
        self.entered += 1
        assert self._open.wait(WAIT_S)
        self.passed += 1
        return "passed"

    def open(self):
        self._open.set()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


def pool(*, threads=1, queue=1, deadline_s=PATIENCE_S, kind="reading"):
    return Pool(kind, PoolLimits(threads, queue, deadline_s, "The storage"))


def hanging(pool, gate, number=1):
    """Greenlets whose tasks hang in a pool, or in its queue."""
    greenlets = [gevent.spawn(pool, gate.pass_through) for _ in range(number)]
    gevent.idle()
    return greenlets


def test_results_and_errors_are_returned():
    used = pool()

    def missing():
        raise NotFound("nothing here")

    assert used(divmod, 7, 2) == (3, 1)
    with pytest.raises(NotFound, match="nothing here"):
        used(missing)
    assert not used.running


def test_other_greenlets_run_while_a_task_blocks(gate):
    used = pool(threads=2)
    (blocked,) = hanging(used, gate)
    assert used(len, "abc") == 3
    gate.open()
    assert blocked.get(timeout=WAIT_S) == "passed"


@pytest.mark.parametrize(("threads", "queue"), [(1, 0), (1, 3), (3, 30)])
def test_a_full_queue_is_an_error_at_once(gate, threads, queue):
    """Reference common#unavailable, operations#overload."""
    used = pool(threads=threads, queue=queue)
    waiting = hanging(used, gate, threads + queue)
    assert used.gate.queued == queue
    with pytest.raises(Overloaded, match=r"The storage is overloaded\. Try again later\.") as caught:
        used(len, "abc")
    assert caught.value.retry_after_s
    assert used.gate.rejected == 1
    gate.open()
    assert [each.get(timeout=WAIT_S) for each in waiting] == ["passed"] * len(waiting)
    assert used(len, "abc") == 3


def for_client(client, pool, function, *arguments):
    CLIENT.set(client)
    return pool(function, *arguments)


def test_a_client_that_queues_much_leaves_room_and_turns_for_others(gate):
    """Reference operations#overload."""
    used = Pool("definitions", PoolLimits(1, 8, PATIENCE_S, "The check", fair=True))
    ended = []

    def run(client):
        gate.pass_through()
        ended.append(client)

    waiting = [gevent.spawn(for_client, "many", used, run, "many") for _ in range(5)]
    gevent.idle()
    assert used.gate.queued == 4
    with pytest.raises(Overloaded, match="busy with other requests of this client"):
        gevent.spawn(for_client, "many", used, run, "many").get(timeout=WAIT_S)
    waiting += [gevent.spawn(for_client, client, used, run, client) for client in ("one", "two")]
    gevent.idle()
    assert used.gate.queued == 6
    gate.open()
    gevent.joinall(waiting, timeout=WAIT_S, raise_error=True)
    assert {"one", "two"} <= set(ended[1:4])
    assert ended.count("many") == 5


def test_pools_of_what_the_broker_does_serve_in_the_order_of_requests(gate):
    used = pool(queue=8)
    waiting = [gevent.spawn(for_client, "many", used, gate.pass_through) for _ in range(9)]
    gevent.idle()
    assert used.gate.queued == 8
    gate.open()
    gevent.joinall(waiting, timeout=WAIT_S, raise_error=True)


def test_pools_that_serve_requests_serve_clients_in_turn():
    fair = {kind for kind, limits in KINDS.items() if limits.fair}
    asked_for = {"database", "computing", "definitions", "evaluations"}
    assert fair == asked_for | {"coordination", "slots", "activity", "reading", "topics"}


def test_a_hanging_task_keeps_its_thread_and_its_caller_times_out(gate):
    """Reference common#unavailable, operations#overload."""
    used = pool(deadline_s=0.01, queue=10)
    with pytest.raises(OutcomeUnknown, match=r"has not answered within 0\.01 s: the outcome is unknown"):
        used(gate.pass_through)
    assert len(used.running) == 1
    for _ in range(10):
        with pytest.raises(Overloaded, match=r"has been busy for 0\.01 s"):
            used(len, "abc")
    assert used.gate.queued == 0
    gate.open()
    used_again = gevent.spawn(used.without_deadline, len, "abc")
    assert used_again.get(timeout=WAIT_S) == 3
    assert gate.passed == 1


def test_a_task_without_a_deadline_is_waited_for(gate):
    used = pool(deadline_s=0.01)
    waiting = gevent.spawn(used.without_deadline, gate.pass_through)
    gevent.sleep(0.05)
    assert not waiting.ready()
    gate.open()
    assert waiting.get(timeout=WAIT_S) == "passed"


def test_a_caller_that_is_killed_leaves_nothing_behind(gate):
    used = pool(queue=1)
    running, queued = hanging(used, gate, 2)
    gevent.killall([running, queued])
    assert used.gate.queued == 0
    gate.open()
    assert used(len, "abc") == 3
    assert not used.running


def test_a_task_runs_calls_to_its_own_pool_in_its_thread():
    used = pool(threads=1, queue=0)
    assert used(lambda: (threading.get_ident(), used(threading.get_ident)))[0] == used(threading.get_ident)


def test_a_task_that_calls_another_pool_is_bounded_by_that_pool(gate):
    database, topics = pool(kind="database"), pool(kind="topics", deadline_s=0.01)
    threads = database(lambda: (threading.get_ident(), topics(threading.get_ident)))
    assert threads[0] != threads[1]
    with pytest.raises(OutcomeUnknown):
        database(topics, gate.pass_through)
    # The thread of the first pool is free again, though that of the other one hangs.
    assert not database.running
    assert len(topics.running) == 1
    assert database(len, "abc") == 3


def test_overdue_tasks_are_distinguished_from_slow_ones(gate):
    used = pool(deadline_s=0.01)
    with pytest.raises(OutcomeUnknown):
        used(gate.pass_through)
    assert not used.overdue(grace_s=PATIENCE_S)
    # Timers of gevent may fire some milliseconds early.
    wait_until(lambda: used.overdue(grace_s=0))
    (task,) = used.overdue(grace_s=0)
    assert task.name == "Gate.pass_through"
    assert used.oldest_s() > 0
    gate.open()
    used.without_deadline(len, "abc")
    assert not used.overdue(grace_s=0)


def test_storages_have_their_own_pools_up_to_a_bound():
    pools = Pools()
    storage_pools = [pools.of_storage(f"storage-{number}") for number in range(10 * STORAGES_MAX)]
    assert len({each.read for each in storage_pools}) == STORAGES_MAX + 1
    assert pools.of_storage("storage-0") == storage_pools[0]
    assert storage_pools[0].read.name == "reading of storage storage-0"
    assert {each.kind for each in pools} == set(KINDS)


def test_threads_of_a_worker_are_bounded():
    used = Pools({kind: PoolLimits(2, 1, PATIENCE_S, "It") for kind in KINDS})
    assert sum(each.limits.threads for each in used) == 2 * len([*used])
    assert all(each.threads <= 10 and each.queue <= 2_048 and each.deadline_s <= 600 for each in KINDS.values())


def test_the_pools_of_a_storage_belong_to_the_main_hub():
    pools = Pools()
    of_storage = pools["database"](pools.of_storage, "storage")
    # A pool of the hub of a native thread that has ended would never deliver its results.
    assert [of_storage.read(len, "abc") for _ in range(10)] == [3] * 10
    assert pools["database"](of_storage.topics, len, "abc") == 3
