import asyncio
import uuid
from collections.abc import Iterator

import pytest

from rioni.client import AsyncClient, Client, EventType, Schema, Statistic
from tests.support.blocking_client import Blocking
from tests.support.server import running_server


@pytest.fixture(scope="package")
def broker(tmp_path_factory):
    """A server for all tests of clients, each of which uses its own names."""
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "1") as running:
        yield running


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(params=["sync", "async"])
def make_client(request, broker, loop):
    """Makes clients of the broker, synchronous and asynchronous ones."""
    if request.param == "sync":
        return lambda url=broker.url, **options: Client(url, **options)
    return lambda url=broker.url, **options: Blocking(AsyncClient(url, **options), loop)


@pytest.fixture
def client(make_client):
    with make_client() as client:
        yield client


@pytest.fixture
def event_type(client):
    """Creates event types and returns their names."""

    def create(partitions=1, **members):
        name = f"client.event-{uuid.uuid4().hex[:12]}"
        schema = Schema.json({"properties": {"number": {"type": "integer"}}})
        statistic = Statistic(
            messages_per_minute=1, message_size=1, read_parallelism=partitions, write_parallelism=partitions
        )
        definition = {"owning_application": "shop", "schema": schema, "default_statistic": statistic, **members}
        client.event_types.create(EventType(name=name, **definition))
        return name

    return create
