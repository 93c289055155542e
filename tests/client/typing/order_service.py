"""A user's project as type checkers see it: a service that publishes typed orders and consumes them."""

import asyncio
from typing import Any, assert_type

import msgspec

from rioni.client import (
    AsyncClient,
    AsyncConsumer,
    Client,
    ClientError,
    Consumer,
    Event,
    EventBatch,
    EventType,
    ItemResult,
    Schema,
    StreamPartition,
    Subscription,
)


class OrderCreated(msgspec.Struct):
    """An order."""

    order: str
    items: list[str] = []


SUBSCRIPTION = Subscription(owning_application="warehouse", event_types=["order.created"], read_from="begin")


def publish(client: Client, orders: list[OrderCreated]) -> list[ItemResult]:
    """Publish orders."""
    schema = Schema.json({"properties": {"order": {"type": "string"}}})
    client.event_types.create(EventType(name="order.created", owning_application="shop", schema=schema))
    return client.publish("order.created", orders)


def consume(client: Client) -> list[str]:
    """Handle orders one by one."""
    seen: list[str] = []
    with client.subscription(SUBSCRIPTION, type=OrderCreated, batch_limit=10, commit="manual") as consumer:
        assert_type(consumer, Consumer[OrderCreated])
        for event in consumer:
            assert_type(event, Event[OrderCreated])
            assert_type(event.data, OrderCreated)
            assert_type(event.metadata.eid, str | None)
            seen.extend(event.data.items)
            event.commit()
        for batch in consumer.batches():
            assert_type(batch, EventBatch[OrderCreated])
    return seen


def run(client: Client) -> None:
    """Handle orders in several threads."""

    def handle(event: Event[OrderCreated]) -> None:
        print(event.data.order, event.partition)  # noqa: T201

    def decide(event: Event[Any], error: Exception) -> str:
        return "skip" if isinstance(error, ValueError) else "stop"

    def revoked(partition: StreamPartition, reason: str) -> None:
        print(partition.event_type, reason)  # noqa: T201

    consumer = client.subscription(SUBSCRIPTION, type=OrderCreated, on_revoked=revoked)
    try:
        consumer.run(handle, concurrency=4, attempts=2, on_error=decide)
    except ClientError as error:
        print(error)  # noqa: T201


def untyped(client: Client) -> Consumer[dict[str, Any]]:
    """Without a type, events are dictionaries."""
    return client.subscription("id")


async def consume_async() -> None:
    """Consume events, with asyncio."""

    async def handle(event: Event[OrderCreated]) -> None:
        await asyncio.sleep(0)
        print(event.data.order)  # noqa: T201

    async with AsyncClient() as client:
        consumer = client.subscription(SUBSCRIPTION, type=OrderCreated)
        assert_type(consumer, AsyncConsumer[OrderCreated])
        await consumer.run(handle, concurrency=4)
        async with client.subscription(SUBSCRIPTION, type=OrderCreated) as other:
            async for event in other:
                assert_type(event.data, OrderCreated)
            assert_type(await other.flush(), bool)
