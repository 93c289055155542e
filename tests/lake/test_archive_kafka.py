"""Events of an event type that has moved to Kafka and back are archived as others are."""

import pytest

from tests.support.lake import create_orders, move_to_kafka, publish_orders


pytestmark = pytest.mark.slow


def test_events_of_all_timelines_are_archived_once(client, lake, kafka_cluster):
    name = create_orders(client)

    def publish(*numbers: int) -> None:
        publish_orders(client, name, *({"order": f"o{number}", "amount": number} for number in numbers))

    publish(*range(20))
    assert lake.archive(name)[name].archived == 20
    publish(*range(20, 25))
    move_to_kafka(client, name, kafka_cluster.kafka)
    publish(*range(25, 55))
    assert lake.archive(name, events=7)[name].archived == 35
    response = client.post(f"/event-types/{name}/timelines", json={"storage_id": "default"})
    assert response.status_code == 201, response.text
    publish(*range(55, 65))
    assert lake.archive(name)[name].archived == 10
    table = lake.table(name)
    assert sorted(table["amount"].to_pylist()) == list(range(65))
    assert len(set(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))) == 65
    assert lake.metric("lost_events_total", name) == 0
