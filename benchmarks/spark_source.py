"""Reading events by Spark's format `rioni` beside two plain clients. `python -m benchmarks.spark_source`.

The plain client reads the same partitions, one after the other, by the same streams, and drops what it gets: that is
what the broker delivers. The second one reads the JSON of each event too. Spark makes rows of whole events; sums and
counts show that their values are there. With one column, the user names a schema of one. All of them share the machine
with the broker. Each round measures each once; it stops by itself.
"""

import argparse
import statistics
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

import orjson
from pyspark.sql import SparkSession

from benchmarks.over_http import served
from rioni.client import Client
from rioni.client.ranges import Range, Reader
from rioni.projections.bulk import spark_session
from rioni.spark import register


NAME = "order.created"
PARTITIONS = 4
BATCH = 1_000
PROPERTIES = {
    "order": {"type": "string"},
    "amount": {"type": "integer"},
    "price": {"type": "number"},
    "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
    "items": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}


def main() -> None:
    """Print events per second of each round, and the medians."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--events", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, served(2) as url, spark_session(Path(folder)) as spark:
        _publish(url, given.events)
        register(spark)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        print(f"{given.events} events, {spark.sparkContext.master}; events/s")
        measured: dict[str, Callable[[], None]] = {
            "plain client": lambda: _read(url, given.events, decode=len),
            "plain client that reads JSON": lambda: _read(url, given.events, decode=orjson.loads),
            "spark": lambda: _query(spark, url, given.events),
            "spark, one column": lambda: _one_column(spark, url, given.events),
        }
        rates: dict[str, list[float]] = {name: [] for name in measured}
        # The first round starts processes and compiles: it does not count.
        for number in range(given.rounds + 1):
            for name, measure in measured.items():
                begun_s = time.monotonic()
                measure()
                rate = given.events / (time.monotonic() - begun_s)
                print(f"{'first round' if number == 0 else number}: {name} {rate:,.0f}", flush=True)
                if number:
                    rates[name].append(rate)
        plain = rates["plain client"]
        for name, found in rates.items():
            ratio = statistics.median(one / other for one, other in zip(found, plain, strict=True))
            print(f"{name:<30} median {statistics.median(found):>10,.0f}, {ratio:.0%} of the plain client")


def _publish(url: str, count: int) -> None:
    load = {
        "messages_per_minute": 1,
        "message_size": 1,
        "read_parallelism": PARTITIONS,
        "write_parallelism": PARTITIONS,
    }
    body = {
        "name": NAME,
        "owning_application": "benchmark",
        "category": "business",
        "enrichment_strategies": ["metadata_enrichment"],
        "compatibility_mode": "none",
        "partition_strategy": "hash",
        "partition_key_fields": ["order"],
        "schema": {"type": "json_schema", "schema": orjson.dumps({"properties": PROPERTIES}).decode()},
        "default_statistic": load,
    }
    _post(f"{url}/event-types", body)
    for first in range(0, count, BATCH):
        _post(f"{url}/event-types/{NAME}/events", [_event(n) for n in range(first, min(first + BATCH, count))])


def _event(number: int) -> dict:
    return {
        "metadata": {"eid": str(uuid.uuid4()), "occurred_at": "2026-01-02T03:04:05Z"},
        "order": f"order-{number}",
        "amount": number,
        "price": number / 100,
        "address": {"city": "Berlin", "zip": f"{number % 100_000:05}"},
        "items": [{"sku": f"sku-{number % 97}"}, {"sku": f"sku-{number % 89}"}],
    }


def _post(url: str, body: object) -> None:
    request = urllib.request.Request(url, orjson.dumps(body), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        answer.read()


def _read(url: str, count: int, decode: Callable[[bytes], object]) -> None:
    read = 0
    with Client(url) as client:
        reader = Reader(client, NAME)
        for partition, bounds in reader.locator.bounds().items():
            there = reader.locator.distance(partition, bounds.before_oldest, bounds.newest)
            for piece in reader.read(Range(partition, bounds.before_oldest, bounds.newest, there)):
                read += len(piece.events)
                for event in piece.events:
                    decode(memoryview(event))
    assert read == count, read


def _query(spark: SparkSession, url: str, count: int) -> None:
    """A query over everything, its planning included."""
    frame = spark.read.format("rioni").options(url=url, event_type=NAME).load()
    row = frame.selectExpr("count(*)", "sum(amount)", "count(metadata.eid)", "sum(size(items))").first()
    assert row is not None
    assert tuple(row) == (count, count * (count - 1) // 2, count, 2 * count), row


def _one_column(spark: SparkSession, url: str, count: int) -> None:
    frame = spark.read.format("rioni").schema("amount bigint").options(url=url, event_type=NAME).load()
    row = frame.selectExpr("count(*)", "sum(amount)").first()
    assert row is not None
    assert tuple(row) == (count, count * (count - 1) // 2), row


if __name__ == "__main__":
    main()
