"""A process that publishes and prints what was acknowledged, and the check that a store contains exactly that.

Run as `python -m tests.storage.embedded.publisher <data directory> <run> <publishers> <batches>`; 0 batches mean no
end. Every batch goes to two partitions; odd publishers give their batches idempotency keys.
"""

import itertools
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from tests.contracts.event_store import read_all


ROOT = Path(__file__).parents[3]
TOPIC = "published"
PARTITIONS = 4


class Acknowledged(NamedTuple):
    run: str
    publisher: int
    number: int
    partition: int
    first: int


def command(path: Path, run: str, publishers: int, batches: int) -> list[str]:
    return [sys.executable, "-m", "tests.storage.embedded.publisher", str(path), run, str(publishers), str(batches)]


def open_store(path: Path) -> tuple[EmbeddedEventStore, EmbeddedSignals]:
    signals = EmbeddedSignals(path / "signals")
    return EmbeddedEventStore(path / "events.db", clock=SystemClock(), signals=signals), signals


def batch(run: str, publisher: int, number: int, partition: int) -> list[bytes]:
    count = 1 + (publisher * 7 + number) % 5
    padding = "x" * ((number * 37) % 400)
    return [
        json.dumps({"of": [run, publisher, number, index, partition], "padding": padding}).encode()
        for index in range(count)
    ]


def partitions_of(publisher: int) -> tuple[int, int]:
    return publisher % PARTITIONS, (publisher + 1) % PARTITIONS


def append(store: EmbeddedEventStore, run: str, publisher: int, number: int) -> dict[int, int]:
    batches = {each: batch(run, publisher, number, each) for each in partitions_of(publisher)}
    claim = IdempotencyClaim(f"{run}-{publisher}-{number}", "digest") if publisher % 2 else None
    return store.append(TOPIC, batches, claim=claim)


def send_again(
    store: EmbeddedEventStore, run: str, publishers: int, acknowledged: Iterable[Acknowledged]
) -> list[Acknowledged]:
    """Repeat the last batch and the one whose answer may be lost, as publishers with idempotency keys do."""
    found = []
    for publisher in range(1, publishers, 2):
        last = max((each.number for each in acknowledged if each.publisher == publisher), default=-1)
        if last >= 0:
            assert append(store, run, publisher, last) == {}, "stored again"
        firsts = append(store, run, publisher, last + 1)
        found += [Acknowledged(run, publisher, last + 1, partition, first) for partition, first in firsts.items()]
    return found


def parse(lines: Iterable[str]) -> list[Acknowledged]:
    found = []
    for line in lines:
        run, *numbers = line.split()
        found.append(Acknowledged(run, *map(int, numbers)))
    return found


def check(store: EmbeddedEventStore, starts: list[int], acknowledged: Iterable[Acknowledged]) -> list[int]:
    """Check everything that was published after some positions, and return the positions after it."""
    stored = [read_all(store, TOPIC, partition, starts[partition], 100_000) for partition in range(PARTITIONS)]
    last: dict[tuple[str, int], int] = {}
    for run, publisher, number, partition, first in acknowledged:
        expected = batch(run, publisher, number, partition)
        begin = first - starts[partition]
        assert stored[partition][begin : begin + len(expected)] == expected, "acknowledged, but not there"
        last[run, publisher] = max(last.get((run, publisher), -1), number)
    by_publisher: dict[tuple[str, int], dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for partition, events in enumerate(stored):
        for event in events:
            run, publisher, *_ = json.loads(event)["of"]
            by_publisher[run, publisher][partition].append(event)
    for (run, publisher), partitions in by_publisher.items():
        done = [count_batches(run, publisher, partition, events) for partition, events in partitions.items()]
        assert len(done) == 2, "a batch is in one of its partitions only"
        assert done[0] == done[1], "a batch is in one of its partitions only"
        # One batch more than was acknowledged may be stored: it was written, and the answer was lost.
        assert last.get((run, publisher), -1) + 1 <= done[0] <= last.get((run, publisher), -1) + 2
    return [start + len(events) for start, events in zip(starts, stored, strict=True)]


def count_batches(run: str, publisher: int, partition: int, events: list[bytes]) -> int:
    """The number of whole batches, checked to be in order, without one missing or twice."""
    for number in itertools.count():
        if not events:
            return number
        expected = batch(run, publisher, number, partition)
        assert events[: len(expected)] == expected
        events = events[len(expected) :]
    raise AssertionError


def main(path: Path, run: str, publishers: int, batches: int) -> None:
    store, signals = open_store(path)
    store.create_topic(TOPIC, PARTITIONS)

    def publish(publisher: int) -> None:
        for number in range(batches) if batches else itertools.count():
            firsts = append(store, run, publisher, number)
            # One write for each answer, so that a killed process has printed all or nothing of it.
            lines = (f"{run} {publisher} {number} {partition} {first}\n" for partition, first in firsts.items())
            os.write(1, "".join(lines).encode())

    threads = [threading.Thread(target=publish, args=(publisher,)) for publisher in range(publishers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    signals.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
