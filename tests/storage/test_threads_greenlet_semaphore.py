import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rioni.storage.threads import ThreadSafeSemaphore
from tests.storage.log_writer import ROOT
from tests.support.waiting import WAIT_S


def test_the_number_of_slots_is_limited():
    places = ThreadSafeSemaphore(2)
    assert places.acquire(0)
    assert places.acquire(0)
    assert not places.acquire(0.01)
    places.release()
    assert places.acquire(0)


def test_a_waiter_gets_the_slot_that_becomes_free():
    lock, waiting = ThreadSafeSemaphore(), threading.Event()

    def wait() -> bool:
        waiting.set()
        return lock.acquire(20)

    with ThreadPoolExecutor(1) as executor:
        with lock:
            waiter = executor.submit(wait)
            assert waiting.wait(WAIT_S)
            assert not waiter.done()
        assert waiter.result(WAIT_S)


def test_a_block_that_raises_releases_its_slot():
    lock = ThreadSafeSemaphore()
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert lock.acquire(0)


@pytest.mark.slow
def test_under_gevent_native_threads_and_greenlets_all_get_the_semaphore():
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.gevent_places"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "all is well\n", done.stderr
