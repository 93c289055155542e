"""Whatever reads, copies or writes many events has each one once, at sizes around every batch, page and file.

Boundaries that are large are made small here where a parameter or a constant has them, and 10,000 events go through all
of them as they are.
"""

import json
from itertools import count

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rioni.client import Client, Subscription, ranges
from rioni.lake.archive import Archive, open_lake
from rioni.lake.event_type_archive import ArchiveMetrics, CommitLimits
from rioni.lake.location import parse_location
from rioni.spark import event_reader, log_source
from rioni.spark.options import parse_options
from rioni.spark.source import EventBatchReader, table_schema
from rioni.spark.stream_reader import EventStreamReader
from rioni.spark.writer import publish
from tests.support.commands import run_command
from tests.support.lake import FORMATS, PRESENT, ArchiveUnderTest, create_orders
from tests.support.waiting import WAIT_S


SMALL = 64
"""A limit, set low so that few events reach it."""
SIZES = (0, 1, 63, 64, 65, 255, 256, 257)
LARGE = (499, 500, 501, 999, 1_000, 1_001, 10_000)
"""Around the batches of streams and commands, the requests of the writer, and far above."""
ALL = (*SIZES, *LARGE)
REQUEST = 1_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(server):
    """An event type for each size, of one partition, so that each boundary is met exactly."""
    made = {}
    with server.client() as client:
        for size in ALL:
            made[size] = create_orders(client, partition_strategy="random", default_statistic=None)
            fill(server, made[size], size)
    return made


def fill(server, name: str, size: int) -> None:
    with Client(server.url, timeout_s=60) as client:
        for first in range(0, size, REQUEST):
            client.publish(
                name, [{"order": f"order-{n}", "amount": n} for n in range(first, min(first + REQUEST, size))]
            )


def served(client, name: str) -> list[str]:
    """The events as the broker delivers them, in their order."""
    found = []
    for each in client.get(f"/event-types/{name}/partitions").json():
        newest = int(each["newest_available_offset"].removeprefix("001-0001-")) + 1
        if newest:
            cursors = json.dumps([{"partition": each["partition"], "offset": "BEGIN"}])
            query = f"batch_limit={newest}&stream_limit={newest}&batch_flush_timeout=30"
            lines = client.get(
                f"/event-types/{name}/events?{query}", headers={"X-Nakadi-Cursors": cursors}, timeout=WAIT_S
            ).text.splitlines()
            found += [canonical(event) for line in lines for event in json.loads(line).get("events", ())]
    return found


def canonical(event) -> str:
    return json.dumps(event, sort_keys=True)


def amounts(events: list[str]) -> list[int]:
    return [json.loads(event)["amount"] for event in events]


@pytest.fixture(scope="module")
def truth(server, sources):
    """The events of each source, checked to be those that were published to it."""
    with server.client() as client:
        found = {size: served(client, name) for size, name in sources.items()}
    for size, events in found.items():
        assert amounts(events) == list(range(size))
        assert len(set(events)) == size
    return found


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("sizes", [SIZES, LARGE], ids=["small commits and batches", "usual batches"])
def test_archives_have_every_event(server, sources, truth, tmp_path, monkeypatch, format_, sizes):
    limits = CommitLimits(events=1_000)
    if sizes is SIZES:
        monkeypatch.setattr(ranges, "BATCH_EVENTS", SMALL // 2)
        monkeypatch.setattr(ranges, "EVENTS_MAX", 2 * SMALL)
        limits = CommitLimits(events=SMALL)
    lake = ArchiveUnderTest(url=server.url, to=str(tmp_path / "lake"), format_=format_)
    tables = open_lake(format_, parse_location(lake.to), None)
    names = [sources[size] for size in sizes]
    with Client(server.url) as client:
        work = Archive(client, tables, names, limits, ArchiveMetrics(), keeps_json=True)
        done, failed = work.archive(lambda: False)
    assert failed == {}
    for size in sizes:
        name = sources[size]
        assert (done[name].archived, done[name].quarantined, done[name].lost) == (size, 0, 0)
        assert lake.archived(name) == sorted(truth[size])
        table = lake.table(name)
        if size:
            rows = table.select(["_offset", "amount", "order"]).sort_by("_offset").to_pylist()
            assert [row["amount"] for row in rows] == list(range(size))
            assert [row["order"] for row in rows] == [f"order-{n}" for n in range(size)]
            assert len({row["_offset"] for row in rows}) == size


# --- commands ---


@pytest.fixture
def rioni(server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIONI_URL", server.url)
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / "contexts.toml"))

    def run(*arguments: str) -> str:
        code, out, err = run_command(monkeypatch, capsys, *arguments)
        assert code == 0, err
        return out

    return run


COMMANDS = {
    "search": ("search",),
    "search in order": ("search", "--sort"),
    "tail": ("tail", "--no-follow"),
    "tail of the last": ("tail", "--no-follow", "--last", "100000"),
}


@pytest.mark.parametrize("size", [size for size in ALL if size])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_show_every_event(rioni, sources, truth, command, size):
    word, *options = COMMANDS[command]
    lines = rioni(word, sources[size], *options).splitlines()
    assert [canonical(json.loads(line)) for line in lines] == truth[size]


@pytest.mark.parametrize("last", [1, 63, 64, 65, 499, 500, 501, 9_999, 10_000])
def test_the_last_events_are_the_last(rioni, sources, truth, last):
    lines = rioni("tail", sources[10_000], "--no-follow", "--last", str(last)).splitlines()
    assert [canonical(json.loads(line)) for line in lines] == truth[10_000][-last:]


@pytest.mark.parametrize("size", [499, 500, 501, 10_000])
def test_what_is_consumed_is_every_event(rioni, server, sources, truth, size):
    wanted = Subscription(owning_application=sources[size], event_types=[sources[size]], read_from="begin")
    with Client(server.url) as client:
        subscription = client.subscriptions.create(wanted).id
        for part in (truth[size][:-1], truth[size][-1:]):
            lines = rioni("subscriptions", "consume", subscription, "--limit", str(len(part))).splitlines()
            assert [canonical(json.loads(line)) for line in lines] == part
        assert client.subscriptions.stats(subscription)[0].partitions[0].unconsumed_events == 0


@pytest.mark.parametrize("size", LARGE)
def test_files_are_published_whole(rioni, client, tmp_path, size):
    name = create_orders(client, partition_strategy="random", default_statistic=None)
    (tmp_path / "orders.csv").write_text("order,amount\n" + "".join(f"order-{n},{n}\n" for n in range(size)))
    rioni("publish", name, "orders.csv")
    assert amounts(served(client, name)) == list(range(size))


@pytest.mark.parametrize("size", ALL)
@pytest.mark.parametrize("batch", [SMALL, 500])
def test_copies_have_every_event(rioni, client, sources, size, batch):
    target = f"{sources[size]}-copy-{batch}"
    said = json.loads(rioni("copy", sources[size], target, "--create", "--batch", str(batch), "--json"))
    assert (said["read"], said["copied"], said["target_growth"]) == (size, size, size)
    assert amounts(served(client, target)) == list(range(size))


# --- Spark, whose tasks are these functions ---


def batch_reader(server, name: str, **options: str) -> EventBatchReader:
    found = parse_options({"url": server.url, "event_type": name, **options})
    return EventBatchReader(found, table_schema(found, [name]))


@pytest.mark.parametrize("size", ALL)
@pytest.mark.parametrize("per_task", [SMALL, 500, 50_000])
def test_reads_have_every_event(server, sources, monkeypatch, size, per_task):
    monkeypatch.setattr(event_reader, "ROWS", SMALL if per_task == SMALL else event_reader.ROWS)
    reader = batch_reader(server, sources[size], events_per_task=str(per_task))
    parts = reader.partitions()
    assert len(parts) == -(-size // per_task)
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["amount"], row["order"]) for row in rows] == [(n, f"order-{n}") for n in range(size)]
    assert len({row["_offset"] for row in rows}) == size


@pytest.mark.parametrize("size", ALL)
@pytest.mark.parametrize("per_batch", [SMALL, 1_000])
def test_streams_have_every_event(server, sources, size, per_batch):
    if size > 100 * per_batch:
        per_batch *= 10  # more micro-batches than that show nothing new
    options = parse_options(
        {"url": server.url, "event_type": sources[size], "events_per_batch": str(per_batch), "events_per_task": "50"}
    )
    reader = EventStreamReader(options, table_schema(options, [sources[size]]))
    start, found = reader.initialOffset(), []
    for _ in range(size // per_batch + 2):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        parts = reader.partitions(start, end)
        micro = [row["amount"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert len(micro) <= per_batch
        found += micro
        start = end
    assert found == list(range(size))


@pytest.mark.parametrize("size", ALL)
@pytest.mark.parametrize("per_request", [SMALL, 1_000])
def test_the_writer_publishes_every_row(server, client, size, per_request):
    name = create_orders(client, partition_strategy="random", default_statistic=None)
    options = parse_options({"url": server.url, "event_type": name, "events_per_request": str(per_request)})
    schema = pa.schema([("order", pa.string()), ("amount", pa.int64())])
    rows = pa.table({"order": [f"order-{n}" for n in range(size)], "amount": range(size)}, schema)
    batches = iter(rows.to_batches(max_chunksize=100))
    publish(options, from_arrow_schema(schema), f"{name}-0", PRESENT, batches, has_metadata=True)
    assert amounts(served(client, name)) == list(range(size))


@pytest.mark.spark
@pytest.mark.parametrize("size", [0, 257, 10_000])
def test_spark_itself_reads_streams_and_writes_every_event(registered, server, client, sources, tmp_path, size):
    options = {"url": server.url, "event_type": sources[size], "events_per_batch": "5000", "events_per_task": "2000"}
    frame = registered.read.format("rioni").options(**options).load()
    assert sorted(row.amount for row in frame.select("amount").collect()) == list(range(size))
    target = create_orders(client)
    written = frame.select("order", "amount")
    written.write.format("rioni").options(url=server.url, event_type=target).mode("append").save()
    assert sorted(amounts(served(client, target))) == list(range(size))
    rows = tmp_path / "rows"
    stream = registered.readStream.format("rioni").options(**options).load().select("amount").writeStream
    stream = stream.format("parquet").option("path", str(rows)).option("checkpointLocation", str(tmp_path / "state"))
    stream.trigger(availableNow=True).start().awaitTermination()
    found = registered.read.schema("amount bigint").parquet(str(rows)).collect()
    assert sorted(row.amount for row in found) == list(range(size))


@pytest.mark.parametrize("wanted", [1, 63, 64, 65, 128, 129])
def test_the_log_as_a_table_has_every_entry(server, client, monkeypatch, wanted):
    """Its batches, and the answers that it asks for one after the other."""
    monkeypatch.setattr(log_source, "ROWS", SMALL)
    name = create_orders(client)
    for number in count(1):
        if number == wanted:
            break
        body = client.get(f"/event-types/{name}").json() | {"labels": {"number": str(number)}}
        assert client.put(f"/event-types/{name}", json=body).status_code == 200
    reader = log_source.LogReader(parse_options({"url": server.url}), log_source.SCHEMA.names)
    reader._query["resource"] = f"event-type:{name}"
    rows = [row for batch in reader.read(None) for row in batch.to_pylist()]
    listed = client.get("/audit", params={"resource": f"event-type:{name}", "limit": 1000}).json()
    assert [row["position"] for row in rows] == sorted({each["position"] for each in listed["items"]})
