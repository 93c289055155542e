"""Streams and reads notice that their event type is not the one any more that they began with."""

import json

import pyarrow as pa
import pytest

from rioni.client._sync.event_types import EventTypes, Partitions
from rioni.client.ranges import RangeError
from rioni.domain.errors import Conflict
from rioni.spark.options import SourceOptions, parse_options
from rioni.spark.source import EventBatchReader, table_schema
from rioni.spark.stream_reader import EventStreamReader
from tests.support.lake import create_orders, publish_orders


NEWEST = None
"""No limit of a micro-batch."""


def numbers(first: int, count: int) -> list[dict]:
    return [{"order": str(number), "amount": number} for number in range(first, first + count)]


def create_again(client, name: str) -> None:
    body = client.get(f"/event-types/{name}").json()
    assert client.delete(f"/event-types/{name}").status_code == 200
    assert client.post("/event-types", json=body).status_code == 201


class Query:
    """A streaming query as Spark runs it: the offsets are all that it keeps."""

    def __init__(self, server, name: str) -> None:
        self._options = parse_options({"url": server.url, "event_type": name})
        self._schema = table_schema(self._options, [name])
        self.start = self.reader().initialOffset()

    def reader(self) -> EventStreamReader:
        return EventStreamReader(self._options, self._schema)

    def run(self, reader: EventStreamReader | None = None) -> list[int]:
        """The amounts of a micro-batch."""
        reader = reader or self.reader()
        end = json.loads(json.dumps(reader.latestOffset(self.start, NEWEST)))
        found = [
            row for part in reader.partitions(self.start, end) for batch in reader.read(part) for row in rows(batch)
        ]
        self.start = end
        return sorted(found)


def rows(batch: pa.RecordBatch) -> list[int]:
    return batch.column("amount").to_pylist()


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("again", [3, 5, 8], ids=["fewer events", "as many", "more"])
def test_a_stream_does_not_go_on_in_an_event_type_that_was_created_again(server, client, restarted, again):
    name = create_orders(client)
    publish_orders(client, name, *numbers(0, 5))
    query = Query(server, name)
    reader = None if restarted else query.reader()
    assert query.run(reader) == list(range(5))
    create_again(client, name)
    publish_orders(client, name, *numbers(0, again))
    with pytest.raises(Conflict, match=f"{name} that was created at .* Start the query with a new checkpoint"):
        query.run(reader)


def test_a_stream_that_is_ahead_of_its_broker_is_refused(server, client):
    """This is the state after the broker was restored from an older backup."""
    name = create_orders(client, partition_strategy="random", default_statistic=None)
    publish_orders(client, name, *numbers(0, 5))
    query = Query(server, name)
    assert query.run() == list(range(5))
    query.start[name]["0"] = query.start[name]["0"][:-1] + "7"
    with pytest.raises(Conflict, match="restored from a backup"):
        query.run()


def test_checkpoints_of_older_releases_go_on(server, client):
    name = create_orders(client)
    publish_orders(client, name, *numbers(0, 5))
    query = Query(server, name)
    del query.start[name]["created_at"]
    assert query.run() == list(range(5))
    assert "created_at" in query.start[name]


def test_an_event_type_that_is_created_again_while_it_is_read_is_an_error(server, client):
    name = create_orders(client)
    publish_orders(client, name, *numbers(0, 5))
    options = parse_options({"url": server.url, "event_type": name})
    reader = EventBatchReader(options, table_schema(options, [name]))
    parts = reader.partitions()
    create_again(client, name)
    publish_orders(client, name, *numbers(10, 5))
    with pytest.raises(RangeError, match="created again while it was read"):
        [rows(batch) for part in parts for batch in reader.read(part)]


def test_a_start_behind_the_end_of_a_partition_is_refused(server, client):
    name = create_orders(client)
    ahead = {"url": server.url, "event_type": name, "from": '{"0": "001-0001-000000000000000003"}'}
    options = parse_options(ahead)
    with pytest.raises(Conflict, match="which ends at"):
        EventBatchReader(options, table_schema(options, [name])).partitions()


@pytest.mark.parametrize(("streams", "start"), [(True, "begin"), (True, "end"), (False, "begin")])
@pytest.mark.parametrize("asked", ["partitions", "event_type"])
def test_an_event_type_that_is_created_again_while_places_are_looked_for_is_an_error(
    server, client, monkeypatch, start, asked, streams
):
    """Else the places of the one before would be taken for places of the new one."""
    name = create_orders(client)
    publish_orders(client, name, *numbers(0, 5))
    options = parse_options({"url": server.url, "event_type": name, "from": start})
    schema = table_schema(options, [name])
    owner, name_of = {"partitions": (Partitions, "list"), "event_type": (EventTypes, "get")}[asked]
    ask, left = getattr(owner, name_of), [True]

    def ask_before(self, wanted, **options):
        answer = ask(self, wanted, **options)
        if left:
            left.clear()
            create_again(client, name)
            publish_orders(client, name, *numbers(10, 8))
        return answer

    monkeypatch.setattr(owner, name_of, ask_before)
    with pytest.raises((Conflict, RangeError), match="created"):
        amounts(options, schema, streams=streams)


def amounts(options: SourceOptions, schema: pa.Schema, *, streams: bool) -> list[int]:
    """The numbers that a batch query, or the first micro-batch of a stream, reads."""
    reader = EventStreamReader(options, schema) if streams else EventBatchReader(options, schema)
    if streams:
        begin = reader.initialOffset()
        parts = reader.partitions(begin, reader.latestOffset(begin, NEWEST))
    else:
        parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in rows(batch)]
