"""Pools that make no progress are detected, and reported with the stacks of their hanging threads."""

import gevent
import pytest
import structlog
from prometheus_client import generate_latest

from rioni.domain.errors import OutcomeUnknown, Overloaded
from rioni.http.metrics.collectors import Metrics
from rioni.installation.pools import KINDS, PoolLimits, Pools
from rioni.server.watchdog import Watchdog, stack_of
from tests.installation.test_pools import PATIENCE_S, Gate


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def pools():
    return Pools({kind: PoolLimits(2, 2, 0.01, "It") for kind in KINDS})


@pytest.fixture
def metrics(monkeypatch):
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    return Metrics()


def hang(pool, gate):
    entered = gate.entered
    with pytest.raises(OutcomeUnknown):
        pool(gate.pass_through)
    with gevent.Timeout(PATIENCE_S):
        while gate.entered == entered:
            gevent.sleep(0.001)


def test_a_pool_with_hanging_threads_is_reported_with_their_stacks(pools, metrics, gate):
    """Reference operations#liveness, operations#hanging-threads."""
    watchdog = Watchdog(pools, metrics, grace_s=0, hard_s=PATIENCE_S)
    assert watchdog.health().status == "ok"
    reading = pools.of_storage("slow").read
    hang(reading, gate)
    # The other thread of the pool is free, so the pool makes progress.
    assert watchdog.health().status == "ok"
    hang(reading, gate)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            health = watchdog.health()
    assert watchdog.hangs
    assert health.reason.startswith("The pool reading of storage slow makes no progress: 2 of 2 threads busy")
    assert "pass_through" in health.detail
    assert "test_pools.py" in health.detail
    # Each of them once, however often the pool is checked.
    assert [each["pool"] for each in logs] == ["reading of storage slow"] * 2
    assert all("pass_through" in each["frames"] for each in logs)
    gate.open()
    with gevent.Timeout(PATIENCE_S):
        while watchdog.health().reason:
            gevent.sleep(0.001)


def test_one_hanging_thread_of_many_is_reported_only_after_the_hard_bound(pools, metrics, gate):
    """Reference operations#hanging-threads."""
    hang(pools["files"], gate)
    assert not Watchdog(pools, metrics, grace_s=0, hard_s=PATIENCE_S).health().reason
    assert Watchdog(pools, metrics, grace_s=0, hard_s=0).health().reason


def test_slow_tasks_are_not_reported(pools, metrics, gate):
    for _ in range(2):
        hang(pools["files"], gate)
    assert not Watchdog(pools, metrics, grace_s=PATIENCE_S, hard_s=PATIENCE_S).health().reason


def test_metrics_show_by_kind_how_busy_pools_are(pools, metrics, gate):
    watchdog = Watchdog(pools, metrics)
    for storage in ("a", "b"):
        hang(pools.of_storage(storage).read, gate)
    waiting = [gevent.spawn(pools["files"].without_deadline, gate.pass_through) for _ in range(4)]
    gevent.idle()
    with pytest.raises(Overloaded):
        pools["files"](len, "abc")
    watchdog.check()
    text = generate_latest(metrics.registry()).decode()
    assert 'rioni_pool_busy_threads{pool="reading"} 2.0' in text
    assert 'rioni_pool_busy_threads{pool="files"} 2.0' in text
    assert 'rioni_pool_queue{pool="files"} 2.0' in text
    assert 'rioni_pool_rejected_total{pool="files"} 1.0' in text
    assert 'rioni_pool_oldest_seconds{pool="database"} 0.0' in text
    gate.open()
    assert [each.get(timeout=PATIENCE_S) for each in waiting] == ["passed"] * 4


def test_a_thread_that_has_ended_has_no_stack():
    assert stack_of(0) == "not running"
