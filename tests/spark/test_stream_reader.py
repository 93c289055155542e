"""Streaming queries neither lose nor double events over restarts; subscriptions follow them."""

import uuid

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.support.lake import create_orders, publish_orders


pytestmark = [pytest.mark.slow, pytest.mark.spark]


class Died(Exception):
    """The query's process has died, from the query's point of view."""


def numbers(first: int, count: int) -> list[dict]:
    return [{"order": str(number), "amount": number} for number in range(first, first + count)]


@pytest.fixture
def run(registered, server, tmp_path):
    """Runs a query to the end of what is there, each time as a new query with the same checkpoint."""
    table = str(tmp_path / "table")

    def run(*, dies_in: int | None = None, **options) -> None:
        def store(frame, batch):
            rows = frame.select("order", "amount", "_partition", "_offset").toArrow()
            known = DeltaTable(table).transaction_version("q") if DeltaTable.is_deltatable(table) else None
            if known is None or known < batch:
                done = CommitProperties(app_transactions=[Transaction("q", batch)])
                write_deltalake(table, rows, mode="append", commit_properties=done)
            if dies_in == batch:
                raise Died

        stream = registered.readStream.format("rioni").options(url=server.url, **options).load()
        writer = stream.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run.amounts = lambda: sorted(DeltaTable(table).to_pyarrow_table()["amount"].to_pylist())
    return run


def test_restarts_lose_and_double_nothing_in_a_delta_table(run, client):
    name = create_orders(client)
    publish_orders(client, name, *numbers(0, 20))
    # The rows of a micro-batch are in the table, but Spark does not know: it reads that batch again.
    with pytest.raises(Exception, match="Died"):
        run(event_type=name, events_per_batch=9, dies_in=1)
    publish_orders(client, name, *numbers(20, 10))
    answer = client.put(f"/event-types/{name}/partition-count", json={"partition_count": 5})
    assert answer.status_code == 204, answer.text
    publish_orders(client, name, *numbers(30, 40))
    run(event_type=name)
    publish_orders(client, name, *numbers(70, 5))
    run(event_type=name)
    assert run.amounts() == list(range(75))


def test_a_subscription_gives_the_start_and_shows_the_lag(run, client):
    name = create_orders(client)
    publish_orders(client, name, *numbers(0, 20))
    body = {
        "owning_application": "spark",
        "event_types": [name],
        "read_from": "end",
        "consumer_group": uuid.uuid4().hex,
    }
    subscription = client.post("/subscriptions", json=body).json()["id"]
    client.patch(f"/subscriptions/{subscription}/cursors", json={"items": []}).raise_for_status()
    publish_orders(client, name, *numbers(20, 10))
    run(subscription=subscription)
    assert run.amounts() == list(range(20, 30))
    [stats] = client.get(f"/subscriptions/{subscription}/stats").json()["items"]
    assert sum(each["unconsumed_events"] for each in stats["partitions"]) == 0
