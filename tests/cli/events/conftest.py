import uuid

import pytest

from rioni.client import Client, EventType, Schema, Statistic, Storage
from tests.support.server import running_server


@pytest.fixture(scope="package")
def broker(tmp_path_factory):
    """A broker for all tests of reading and copying, each of which uses its own names."""
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "1") as running:
        with Client(running.url) as client:
            client.storages.create(Storage(id="second", storage_type="embedded"))
        yield running


@pytest.fixture(scope="package")
def client(broker):
    with Client(broker.url) as client:
        yield client


@pytest.fixture
def event_type(client):
    """Creates event types and returns their names."""

    def create(partitions=1, **members):
        name = f"events.{uuid.uuid4().hex[:12]}"
        statistic = Statistic(
            messages_per_minute=1, message_size=1, read_parallelism=partitions, write_parallelism=partitions
        )
        defaults = {
            "owning_application": "shop",
            "schema": Schema.json({"properties": {"key": {"type": "string"}, "number": {"type": "integer"}}}),
            "default_statistic": statistic,
            "partition_strategy": "hash",
            "partition_key_fields": ["key"],
        }
        client.event_types.create(EventType(name=name, **{**defaults, **members}))
        return name

    return create
