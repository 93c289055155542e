"""A process that joins a subscription, commits some cursors, and then stays connected: run by test_coordination."""

import sys
from pathlib import Path

from rioni.domain.errors import RioniError
from rioni.domain.timelines.position import EventTypePartition, format_offset
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.signals import EmbeddedSignals


def main() -> None:
    data, subscription, stream, commits = sys.argv[1:]
    signals = EmbeddedSignals(Path(data, "signals"))
    coordinator = EmbeddedCoordinator(Path(data, "coordination.db"), clock=SystemClock(), signals=signals)
    coordinator.join(subscription, stream)
    _say("joined")
    key = EventTypePartition("a", "0")
    for position in range(int(commits)):
        try:
            coordinator.commit(subscription, stream, [(key, format_offset(1, position))])
        except RioniError as ex:
            _say(ex)
            break
        _say(position)
    sys.stdin.read()


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
