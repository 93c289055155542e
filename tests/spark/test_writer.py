"""Rows are published once, however often their task is repeated."""

import json
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rioni.spark.options import parse_options
from rioni.spark.writer import NotPublished, publish
from tests.support.descendants import descendants, kill_all
from tests.support.lake import PRESENT, create_orders, schema_of, stored
from tests.support.server import count_events
from tests.support.tcp_proxy import proxies_to
from tests.support.waiting import wait_until


EVENTS = 300

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def amounts(client, name: str) -> list[int]:
    return sorted(json.loads(each)["amount"] for each in stored(client, name))


def test_a_table_is_published_and_a_repeated_job_stores_nothing_twice(registered, server, client):
    name = create_orders(client)
    rows = registered.range(50).selectExpr("cast(id as string) as order", "id as amount")
    for _ in range(2):
        options = {"url": server.url, "event_type": name, "job": f"job-{name}", "events_per_request": "7"}
        # The time of `occurred_at` would differ: a job that is repeated as a whole brings its own metadata.
        full = rows.selectExpr("*", "named_struct('occurred_at', '2026-01-01T00:00:00Z') as metadata")
        full.write.format("rioni").options(**options).mode("append").save()
    assert amounts(client, name) == list(range(50))


def test_a_task_that_dies_and_is_repeated_stores_nothing_twice(server, client):
    name = create_orders(client)
    options = parse_options({"url": server.url, "event_type": name, "events_per_request": "4"})
    rows = pa.RecordBatch.from_pylist([{"order": str(number), "amount": number} for number in range(10)])

    def dying():
        yield rows.slice(0, 6)
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        publish(
            options, from_arrow_schema(rows.schema), f"{name}-0", "2026-01-01T00:00:00Z", dying(), has_metadata=True
        )
    publish(
        options, from_arrow_schema(rows.schema), f"{name}-0", "2026-01-01T00:00:00Z", iter([rows]), has_metadata=True
    )
    assert amounts(client, name) == list(range(10))


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_what_killed_tasks_have_published_is_not_published_again(registered, server, client, tmp_path, kind):
    """The Python processes of the executors are killed while they publish; Spark repeats their tasks."""
    source, target = tmp_path / "source", create_orders(client)
    columns = ("cast(id as string) as order", "id as amount", f"named_struct('occurred_at', '{PRESENT}') as metadata")
    registered.range(EVENTS).selectExpr(*columns).coalesce(1).write.parquet(str(source))
    options = {"event_type": target, "job": f"job-{target}", "events_per_request": "1"}

    def kill() -> int:
        wait_until(lambda: count_events(client, target) == EVENTS // 2)
        # Java has started a process that forks those of the tasks.
        forking = descendants(registered.sparkContext._gateway.proc.pid)
        workers = [pid for each in forking for pid in descendants(each)]
        kill_all(workers)
        way.break_off()
        way.heal()
        return len(workers)

    with proxies_to(server.url.removeprefix("http://")) as (way,), ThreadPoolExecutor(1) as pool:
        options["url"] = f"http://{way.address}"
        # The task waits for this answer, and cannot end before it is killed.
        way.cut_answer_to(f'"order":"{EVENTS // 2 - 1}"'.encode())
        killed = pool.submit(kill)
        if kind == "batch":
            rows = registered.read.parquet(str(source))
            rows.write.format("rioni").options(**options).mode("append").save()
        else:
            rows = registered.readStream.schema(registered.read.parquet(str(source)).schema).parquet(str(source))
            writer = rows.writeStream.format("rioni").options(**options).trigger(availableNow=True)
            writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        assert killed.result() > 0
    assert amounts(client, target) == list(range(EVENTS))


def test_refused_events_are_an_error_that_says_why(server, client):
    name = create_orders(client, schema=schema_of({"amount": {"type": "integer"}, "order": {"type": "string"}}))
    options = parse_options({"url": server.url, "event_type": name})
    rows = pa.RecordBatch.from_pylist([{"order": "a", "amount": "many"}])
    with pytest.raises(NotPublished, match="validating"):
        publish(options, from_arrow_schema(rows.schema), name, "2026-01-01T00:00:00Z", iter([rows]), has_metadata=True)
    assert stored(client, name) == []


def test_a_stream_is_published_once_over_restarts(registered, server, client, tmp_path):
    source, target = create_orders(client), create_orders(client)
    registered.range(20).selectExpr("cast(id as string) as order", "id as amount").write.format("rioni").options(
        url=server.url, event_type=source
    ).mode("append").save()
    # A second checkpoint knows nothing of the first: only the keys of the job keep it from storing again.
    for checkpoint in ("a", "b"):
        stream = registered.readStream.format("rioni").options(url=server.url, event_type=source).load()
        rows = stream.selectExpr("order", "amount", "named_struct('occurred_at', metadata.occurred_at) as metadata")
        writer = rows.writeStream.format("rioni").options(url=server.url, event_type=target, job=f"copy-{target}")
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()
    assert amounts(client, target) == list(range(20))
