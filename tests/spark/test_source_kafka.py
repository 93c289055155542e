"""Events in Kafka are read by Spark as those of the embedded storage are, over a switch of timelines."""

import pytest

from tests.support.lake import create_orders, move_to_kafka, publish_orders


pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_events_of_all_timelines_are_read_in_batches_and_streams(read, registered, server, client, kafka_cluster):
    name = create_orders(client)
    publish_orders(client, name, *({"order": f"o{n}", "amount": n} for n in range(30)))
    move_to_kafka(client, name, kafka_cluster.kafka)
    publish_orders(client, name, *({"order": f"o{n}", "amount": n} for n in range(30, 70)))

    rows = read(name, events_per_task=11).collect()
    assert sorted(row.amount for row in rows) == list(range(70))
    assert len({(row["_partition"], row["_offset"]) for row in rows}) == 70

    found: list[int] = []
    stream = registered.readStream.format("rioni").options(url=server.url, event_type=name, events_per_batch=25).load()
    query = stream.writeStream.foreachBatch(lambda frame, _: found.extend(row.amount for row in frame.collect()))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(found) == list(range(70))
