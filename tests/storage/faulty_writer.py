"""Writes to a store while strace lets fsync fail, prints the result of each write, and dies without closing anything.

Run with the kind of the store and its path.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rioni.commands.system.storages import SwitchFeature
from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import StorePools
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.domain.system.settings import FEATURES
from rioni.domain.timelines.position import EventTypePartition, format_offset
from rioni.installation.infrastructure import build_infrastructure
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from tests.support.clock import ManualClock
from tests.support.waiting import WAIT_S


WRITES = 12
PARTITION = EventTypePartition("a", "0")

# strace counts the calls of each thread, so all must come from one thread.
_pool = ThreadPoolExecutor(1)


def _run_in_pool(function, *args, **kwargs):
    return _pool.submit(function, *args, **kwargs).result(WAIT_S)


class NoSignals:
    """Signals that have no receivers."""

    def notify(self, *keys: str) -> None:
        pass


def _events(path: Path):
    store = EmbeddedEventStore(path, clock=ManualClock(), signals=NoSignals(), pools=StorePools.all(_run_in_pool))

    def write(number: int) -> None:
        store.append("topic", {0: [b"%d" % number]}, claim=IdempotencyClaim(str(number), "digest"))

    return write


def _cursors(path: Path):
    coordinator = EmbeddedCoordinator(path, clock=ManualClock(), signals=NoSignals(), pool=_run_in_pool)
    coordinator.join("s", "stream")

    def write(number: int) -> None:
        coordinator.commit("s", "stream", [(PARTITION, format_offset(1, number))])

    return write


def _registry(path: Path):
    directory = DataDirectory(path)
    base = build_infrastructure(Config(data=path, database_lock_timeout_s=2), directory)

    def write(number: int) -> None:
        base.bus.dispatch(SwitchFeature(feature=FEATURES[number], enabled=True), base.system_context())

    return write


def main(kind: str, path: Path) -> None:
    """Write, and print for each number `stored`, `unknown` or `nothing`."""
    write = {"events": _events, "cursors": _cursors, "registry": _registry}[kind](path)
    for number in range(WRITES):
        try:
            write(number)
        except Unavailable as ex:
            answer = "unknown" if "unknown" in str(ex) else "nothing"
        else:
            answer = "stored"
        sys.stdout.write(f"answer {number} {answer}\n")
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
