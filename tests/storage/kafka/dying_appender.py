"""Processes that append a batch with an idempotency key or event ids, and die at one step of it.

`python -m tests.storage.kafka.dying_appender` reads the arguments of `main` from each line of its standard input, forks
such a process, and prints its exit code: none of them has to import anything.
"""

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.delivery import Delivery
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence.idempotency_index import IdempotencyIndex, open_index
from tests.contracts.event_store import TOPIC, events


BATCHES = {0: events("a", "b"), 1: events("c"), 2: events("d", "e")}
CLAIM = IdempotencyClaim("name", "digest")
IDS = {0: ["a", "b"], 1: ["c"], 2: ["d", "e"]}

DIED = 9
STEPS = ("looked up", "noted", "one event", "some partitions", "acknowledged")


def once(kind: str) -> dict[str, Any]:
    """The idempotency key or event ids of the batch."""
    return {"claim": CLAIM} if kind == "claim" else {"ids": IDS}


def main(servers: str, prefix: str, database: str, folder: str, step: str, kind: str) -> None:
    """Append `BATCHES` to `TOPIC`, which exists, and die at a step, one of `STEPS`."""
    if step == "looked up":
        IdempotencyIndex.begin = die
    elif step == "acknowledged":
        IdempotencyIndex.settle = die
    elif step == "noted":
        Delivery.begin = die
    else:
        Delivery.begin = die_after_partial_delivery(Delivery.begin, step)
    signals = EmbeddedSignals(Path(folder))
    connection = KafkaConnection(bootstrap_servers=servers, topic_prefix=prefix)
    store = KafkaEventStore(connection, open_index(database, "storage"), clock=SystemClock(), signals=signals)
    store.append(TOPIC, BATCHES, **once(kind))


def die(*_args: object, **_kwargs: object) -> NoReturn:
    os._exit(DIED)


def die_after_partial_delivery(begin: Callable[..., None], step: str) -> Callable[..., NoReturn]:
    def deliver_some(self, group, now_ms):
        (batch,) = group
        if step == "some partitions":
            batch.parts = {place: part for place, part in batch.parts.items() if place.partition < 2}
        else:
            batch.parts = {place: part for place, part in batch.parts.items() if place.partition == 0}
            (part,) = batch.parts.values()
            part.events, part.indexes = part.events[:1], part.indexes[:1]
        begin(self, group, now_ms)
        self.advance(group, group, math.inf)
        os._exit(DIED)

    return deliver_some


if __name__ == "__main__":
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            main(*json.loads(line))
            sys.exit()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # noqa: T201 - its answer
