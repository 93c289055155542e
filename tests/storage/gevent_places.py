"""A patched process in which native threads and greenlets use one semaphore; with a lock of `threading` it hangs."""

from gevent import monkey


if __name__ == "__main__":
    monkey.patch_all()

import sys

import gevent

from rioni.storage.threads import ThreadSafeSemaphore
from tests.support.waiting import WAIT_S


THREADS, GREENLETS, TURNS = 6, 4, 2_000


def main() -> None:
    # So often that threads are preempted while they hold the semaphore.
    sys.setswitchinterval(0.000_05)
    lock, inside, turns = ThreadSafeSemaphore(), [], [0]

    def take() -> None:
        for _ in range(TURNS):
            with lock:
                inside.append(1)
                assert sum(inside) == 1
                turns[0] += 1
                inside.pop()

    def take_and_rest() -> None:
        for _ in range(TURNS // 100):
            with lock:
                inside.append(1)
                gevent.sleep(0)
                assert sum(inside) == 1
                turns[0] += 1
                inside.pop()

    pool = gevent.get_hub().threadpool
    natives = [pool.spawn(take) for _ in range(THREADS)]
    greenlets = [gevent.spawn(take_and_rest) for _ in range(GREENLETS)]
    for each in (*natives, *greenlets):
        each.get(timeout=WAIT_S)
    assert turns == [THREADS * TURNS + GREENLETS * (TURNS // 100)]
    sys.stdout.write("all is well\n")


if __name__ == "__main__":
    main()
