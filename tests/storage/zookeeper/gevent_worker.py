"""Uses ZooKeeper as a worker process of the server does: patched, streams in greenlets, commands in threads.

Writes a line of JSON.
"""

from gevent import monkey


monkey.patch_all()

import json  # noqa: E402 - patched
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from uuid import uuid4  # noqa: E402

import gevent  # noqa: E402

from rioni.config.logs import configure  # noqa: E402
from rioni.config.settings import Config  # noqa: E402
from rioni.domain.timelines.position import EventTypePartition, format_offset  # noqa: E402
from rioni.storage.embedded.signals import EmbeddedSignals  # noqa: E402
from rioni.storage.zookeeper.factory import SharedClients, ZooKeeperOptions, open_shared  # noqa: E402
from tests.support.waiting import WAIT_S  # noqa: E402


STREAMS, COMMITS, MANY = 4, 25, 1_000


def main(hosts: str, directory: str, pem: str = "") -> None:
    configure(Config())
    local = EmbeddedSignals(Path(directory))
    shared = open_shared(hosts, local, options=ZooKeeperOptions(ca=pem, certificate=pem, key=pem))
    coordinator, signals = shared.coordinator, shared.signals
    subscription = str(uuid4())
    keys = [EventTypePartition("a", str(number)) for number in range(STREAMS)]
    coordinator.initialise(subscription, dict.fromkeys(keys, format_offset(1, -1)))
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while True:
            gevent.sleep(0.001)
            ticks += 1

    def stream(key: EventTypePartition) -> str:
        name = str(uuid4())
        waiter = signals.watch([f"subscription:{subscription}", f"stream:{name}"])
        coordinator.join(subscription, name, [key])
        for position in range(COMMITS):
            assert coordinator.commit(subscription, name, [(key, format_offset(1, position))]) == [True]
            while coordinator.cursors(subscription)[key] != format_offset(1, position):
                assert waiter.wait(WAIT_S)
        waiter.close()
        return name

    ticker = gevent.spawn(tick)
    greenlets = [gevent.spawn(stream, key) for key in keys]
    names = {greenlet.get() for greenlet in greenlets}
    pool = gevent.get_hub().threadpool
    # From threads without their own hub, as commands do.
    alive = pool.apply(coordinator.is_alive, (coordinator.worker,))
    seen = pool.apply(coordinator.topology, (subscription,)).sessions.keys()
    several = [pool.spawn(coordinator.leave, subscription, name) for name in names]
    for each in several:
        each.get()
    left = len(coordinator.topology(subscription).sessions)
    pool.apply(coordinator.delete, (subscription,))
    forgotten = coordinator.topology(subscription).epoch == 0
    taken = [pool.apply(shared.quota.acquire, (f"{n}", {"a": 2})) for n in range(3)]
    while not shared.leadership.held():
        time.sleep(0.001)
    ticker.kill()
    counts = ask_for_much_at_once(shared)
    for adapter in (shared.leadership, shared.quota, shared.coordinator, signals):
        adapter.close()
    result = {"alive": alive, "seen": seen == names, "left": left, "forgotten": forgotten, "taken": taken}
    sys.stdout.write(json.dumps(result | {"ticked": ticks > COMMITS, "counts": counts}))


def ask_for_much_at_once(shared: SharedClients) -> list[int]:
    subscription, keys = str(uuid4()), [EventTypePartition("a", str(number)) for number in range(MANY)]
    shared.coordinator.initialise(subscription, dict.fromkeys(keys, format_offset(1, -1)))
    asking = [gevent.spawn(shared.coordinator.cursors, subscription) for _ in range(2)]
    asking.append(gevent.spawn(shared.quota.acquire, "many", {f"many-{number}": 1 for number in range(MANY)}))
    return [len(each.get()) for each in asking]


if __name__ == "__main__":
    main(*sys.argv[1:])
