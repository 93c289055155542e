"""A patched process, as `rioni serve` is: 50 greenlets append while the disk can't be written; the hub keeps running.

Run as `python -m tests.storage.embedded.gevent_publisher <data directory>`.
"""

from gevent import monkey


if __name__ == "__main__":
    monkey.patch_all()

import fcntl
import os
import sys
import threading
from pathlib import Path

import gevent

from rioni.installation.pools import Pools
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from tests.contracts.event_store import events, read_all
from tests.support.waiting import WAIT_S


GREENLETS = 50
TICKS = 100


def main(path: Path) -> None:
    signals = EmbeddedSignals(path / "signals")
    store = EmbeddedEventStore(
        path / "events.db",
        clock=SystemClock(),
        signals=signals,
        pools=Pools().of_storage("storage"),
    )
    store.create_topic("topic", 1)
    waiter = signals.watch(["topic:topic"])

    # Another process holds the write lock on a slow disk.
    fd = os.open(path / "events.db-lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    returned: list[int] = []
    killed = gevent.spawn(store.append, "topic", {0: events("killed")})
    greenlets = [
        threading.Thread(target=lambda number=number: returned.append(store.append("topic", {0: events(number)})[0]))
        for number in range(GREENLETS)
    ]
    for greenlet in greenlets:
        greenlet.start()
    for _ in range(TICKS):
        gevent.sleep(0.001)
        assert store.bounds("topic")[0].newest == -1
        assert not returned
    killed.kill()
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
    for greenlet in greenlets:
        greenlet.join()

    assert waiter.wait(WAIT_S)
    found = read_all(store, "topic", 0)
    # The first one was being written already when its caller was killed, which did not affect the others.
    assert sorted(found) == sorted(events("killed", *range(GREENLETS)))
    assert sorted(returned) == sorted(found.index(event) for event in events(*range(GREENLETS)))
    assert store.delete_before("topic", 2**52) == GREENLETS + 1
    assert store.verify() == []
    waiter.close()
    store.close()
    signals.close()
    sys.stdout.write("all is well\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
