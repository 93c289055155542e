"""How fast Spark reads events beside one plain client of the same broker. `python -m benchmarks.spark_source`.

Both read the same events over HTTP from one broker on this machine; Spark has two threads, and makes rows of them.
"""

import argparse
import tempfile
import time
from pathlib import Path

from rioni.lake.broker import Broker
from rioni.projections.bulk import spark_session
from rioni.spark import register
from rioni.tools.load_client import Server
from tests.support.lake import create_orders, publish_orders
from tests.support.server import running_server


EVENTS, BATCH = 200_000, 2_000


def main() -> None:
    """Print events a second."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--events", type=int, default=EVENTS)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder) / "data") as server:
        with server.client() as client:
            client.event_hooks = {"request": [], "response": []}
            name = create_orders(client)
            for first in range(0, given.events, BATCH):
                events = ({"order": str(n), "amount": n} for n in range(first, min(first + BATCH, given.events)))
                publish_orders(client, name, *events)
        with spark_session(Path(folder) / "spark") as spark:
            register(spark)
            for _ in range(given.rounds):
                _show("one plain client", given.events, lambda: _read(server.url, name))
                frame = spark.read.format("rioni").option("url", server.url).option("event_type", name).load()
                _show("Spark", given.events, lambda frame=frame: frame.write.format("noop").mode("overwrite").save())


def _read(url: str, name: str) -> None:
    broker = Broker(Server(url))
    for each in broker.partitions(name):
        count = each.newest.position - each.before_oldest.position
        with broker.stream(name, each.name, each.before_oldest, count) as batches:
            assert sum(len(batch.events) for batch in batches) == count


def _show(what: str, events: int, work) -> None:
    begin = time.perf_counter()
    work()
    print(f"{what}: {events / (time.perf_counter() - begin):,.0f} events/s", flush=True)


if __name__ == "__main__":
    main()
