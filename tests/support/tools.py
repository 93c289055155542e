"""The tools that make requests for their users, as the reference lists them: the client and the formats of Spark.

Source: reference authorization#tools.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from rioni.client import AsyncClient, Client, Cursor
from rioni.spark.log_source import LogDataSource
from rioni.spark.options import SourceOptions, parse_options
from rioni.spark.source import EventDataSource
from rioni.spark.writer import EventStreamWriter, SparkEventWriter, publish
from rioni.testing import Broker
from tests.support.ways import COMPACTED, ET, EVENT


BEGIN = [Cursor(partition="0", offset="BEGIN")]
DELETED = {"order_id": "1", "metadata": EVENT["metadata"] | {"partition_compaction_key": "1"}}
SHORT: Mapping[str, Any] = {"stream_limit": 1, "batch_limit": 1, "batch_flush_timeout": 1}
ROWS = pa.RecordBatch.from_pylist([{"order_id": "2"}])


class User(NamedTuple):
    """The user of a tool, and the broker."""

    url: str
    token: str | None
    subscription: str

    def client(self) -> Client:
        """A client that tries each request once."""
        return Client(self.url, token=self.token, attempts=1)

    def async_client(self) -> AsyncClient:
        """An asynchronous client that tries each request once."""
        return AsyncClient(self.url, token=self.token, attempts=1)

    def options(self, **further: str) -> dict[str, str]:
        """Options of the formats of Spark."""
        return {"url": self.url, "quiet_s": "1", **({"token": self.token} if self.token else {}), **further}


Tool = Callable[[User], Any]
"""Makes its requests for a user, and returns what it has read or stored, which is not nothing."""


def _of_client(use: Callable[[Client], Any]) -> Tool:
    def tool(user: User) -> Any:
        with user.client() as client:
            return use(client)

    return tool


def _of_async_client(use: Callable[[AsyncClient], Any]) -> Tool:
    def tool(user: User) -> Any:
        async def run() -> Any:
            async with user.async_client() as client:
                return await use(client)

        return asyncio.run(run())

    return tool


def _produce(client: Client) -> Any:
    with client.producer(ET) as producer:
        producer.send(EVENT).result()
    return EVENT


async def _produce_async(client: AsyncClient) -> Any:
    async with client.producer(ET) as producer:
        await (await producer.send(EVENT)).result()
    return EVENT


async def _publish_async(client: AsyncClient) -> Any:
    return await client.publish(ET, [EVENT]) or EVENT


async def _delete_async(client: AsyncClient) -> Any:
    return await client.delete_events(COMPACTED, [DELETED]) or DELETED


def _consume(user: User) -> Any:
    with user.client() as client, client.subscription(user.subscription, stop_timeout_s=1) as consumer:
        return next(iter(consumer)).data


def _consume_async(user: User) -> Any:
    async def run() -> Any:
        async with user.async_client() as client, client.subscription(user.subscription, stop_timeout_s=1) as consumer:
            return (await anext(aiter(consumer))).data

    return asyncio.run(run())


def _test_kit(user: User) -> Any:
    return Broker.at(user.url, token=user.token).published(ET)


def _spark_read(user: User) -> Any:
    source = EventDataSource(user.options(event_type=ET))
    reader = source.reader(source.schema())
    return [*chain.from_iterable(reader.read(each) for each in reader.partitions())]


def _spark_stream(user: User, **further: str) -> Any:
    source = EventDataSource(user.options(**further))
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    found = [*chain.from_iterable(reader.read(each) for each in reader.partitions(start, end))]
    reader.commit(end)
    return found


def _spark_stream_of_event_type(user: User) -> Any:
    return _spark_stream(user, event_type=ET)


def _spark_stream_of_subscription(user: User) -> Any:
    return _spark_stream(user, subscription=user.subscription)


def _spark_write(user: User) -> Any:
    return _written(user, SparkEventWriter)


def _spark_stream_write(user: User) -> Any:
    return _written(user, EventStreamWriter)


def _written(user: User, writer: Callable[[SourceOptions, StructType], Any]) -> Any:
    options = parse_options(user.options(event_type=ET, job=str(uuid4())))
    schema = from_arrow_schema(ROWS.schema)
    writer(options, schema)
    now = EVENT["metadata"]["occurred_at"]  # type: ignore[index] - a mapping
    publish(options, schema, str(uuid4()), now, iter([ROWS]), has_metadata=True)
    return ROWS


def _spark_log(user: User) -> Any:
    reader = LogDataSource(user.options()).reader(StructType().add("actor", "string"))
    return [*reader.read(reader.partitions()[0])]


async def _listed(items: AsyncIterator[Any]) -> Sequence[Any]:
    return [each async for each in items]


TOOLS: Mapping[str, Sequence[Tool]] = {
    "Client.publish": (
        _of_client(lambda client: client.publish(ET, [EVENT]) or EVENT),
        _of_async_client(_publish_async),
    ),
    "Client.producer": (_of_client(_produce), _of_async_client(_produce_async)),
    "Client.delete_events": (
        _of_client(lambda client: client.delete_events(COMPACTED, [DELETED]) or DELETED),
        _of_async_client(_delete_async),
    ),
    "Client.events": (
        _of_client(lambda client: [*client.events(ET, cursors=BEGIN, **SHORT)]),
        _of_async_client(lambda client: _listed(client.events(ET, cursors=BEGIN, **SHORT))),
    ),
    "Client.subscription": (_consume, _consume_async),
    "Client.audit.entries": (
        _of_client(lambda client: [*client.audit.entries(limit=1)]),
        _of_async_client(lambda client: _listed(client.audit.entries(limit=1))),
    ),
    "rioni.testing.Broker.published": (_test_kit,),
    "spark.read, format rioni": (_spark_read,),
    "spark.readStream, format rioni": (_spark_stream_of_event_type,),
    "spark.readStream, format rioni, of a subscription": (_spark_stream_of_subscription,),
    "spark.write, format rioni": (_spark_write,),
    "spark.writeStream, format rioni": (_spark_stream_write,),
    "spark.read, format rioni.log": (_spark_log,),
}
"""By the name of the reference; of the client both, for threads and for asyncio."""
