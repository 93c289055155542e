"""A patched process, as `rioni serve` is: its native threads create, close and delete topics while others query bounds.

Run as `python -m tests.storage.kafka.gevent_topics <brokers> <folder>`; prints which calls never ended.
"""

from gevent import monkey


if __name__ == "__main__":
    monkey.patch_all()

import contextlib
import faulthandler
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import gevent

from rioni.config.logs import configure
from rioni.config.settings import Config
from rioni.domain.errors import NotFound, Unavailable
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence.idempotency_index import open_index
from rioni.storage.kafka.topics.readiness import SETTLED_S


CHANGING, ASKING = 4, 6
"""The threads of gevent's pool, by their task."""
PARTITIONS = 4
SECONDS = 5.0
HANGING_S = 2 * SETTLED_S
"""A call that lasts longer is considered to hang; creating a topic may wait `SETTLED_S` for its leaders."""


class Threads:
    """The current call of each thread of the pool, and its start."""

    def __init__(self, store: KafkaEventStore) -> None:
        self._store, self._end_s = store, time.monotonic() + SECONDS
        self._topics = [str(uuid4()) for _ in range(CHANGING)]
        self._running: dict[int, tuple[str, float]] = {}
        self.calls = [0] * (CHANGING + ASKING)

    def run(self, number: int) -> None:
        """The loop of one thread."""
        topic, store = self._topics[number % CHANGING], self._store
        while time.monotonic() < self._end_s:
            if number < CHANGING:
                self._call(number, store.create_topic, topic, PARTITIONS)
                self._call(number, store.close_topic, topic)
                self._call(number, store.delete_topic, topic)
            else:
                self._call(number, store.bounds, topic)

    def hanging(self) -> list[str]:
        """The calls that last too long."""
        return [name for name, since_s in list(self._running.values()) if time.monotonic() - since_s > HANGING_S]

    def _call(self, number: int, call: Callable[..., object], *arguments: object) -> None:
        self._running[number] = call.__name__, time.monotonic()
        # While the state of a topic changes, brokers may know no leaders of it.
        with contextlib.suppress(NotFound, Unavailable):
            call(*arguments)
        del self._running[number]
        self.calls[number] += 1


def main(servers: str, folder: Path) -> None:
    configure(Config())
    # So often that threads are preempted between any two steps.
    sys.setswitchinterval(0.000_05)
    connection = KafkaConnection(bootstrap_servers=servers, topic_prefix=f"{uuid4()}-")
    index, signals = open_index(f"sqlite:///{folder / 'names.db'}", "storage"), EmbeddedSignals(folder)
    store = KafkaEventStore(connection, index, clock=SystemClock(), signals=signals)
    threads, pool = Threads(store), gevent.get_hub().threadpool
    # No offloaded call runs on the hub's thread, which is also true of the server.
    tasks = [pool.spawn(threads.run, number) for number in range(len(threads.calls))]
    while not all(task.ready() for task in tasks):
        gevent.sleep(0.1)
        if hanging := threads.hanging():
            sys.stdout.write(f"these never end: {hanging}\n")
            sys.stdout.flush()
            faulthandler.dump_traceback()
            os._exit(1)
    for task in tasks:
        task.get()
    assert all(threads.calls), threads.calls
    sys.stdout.write("all is well\n")
    store.close()
    signals.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
