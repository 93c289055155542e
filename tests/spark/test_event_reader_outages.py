"""Readers, archives and publishers that make single requests ride out outages: nothing is lost or duplicated."""

import contextlib
import itertools
import json
import random
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rioni.client import Client, ClientError
from rioni.client.ranges import RangeError
from rioni.lake.archive import Archive, open_lake
from rioni.lake.event_type_archive import ArchiveMetrics, CommitLimits
from rioni.lake.location import parse_location
from rioni.spark.log_source import SCHEMA, LogReader
from rioni.spark.options import parse_options
from rioni.spark.source import EventBatchReader, table_schema
from rioni.spark.stream_reader import EventStreamReader
from rioni.spark.writer import publish
from tests.support import faulty_way
from tests.support.campaigns import length
from tests.support.faulty_way import LOST, REFUSED, answer, cut, status
from tests.support.lake import PRESENT, ArchiveUnderTest, create_orders, publish_orders, stored
from tests.support.server import running_server


pytestmark = pytest.mark.slow
EVENTS = 24
DELETED = 10
"""After this event there is a position without one, and no batch waits for more events."""
OUTAGE = 4
"""Requests that fail."""
BEGIN_EVERY = length(6, 1)
"""Requests between two that an outage begins with."""
CUT_EVERY = length(2_999, 1)
"""Bytes between two places at which answers are cut off."""
RETRY_S = 30
CURSOR = {"partition": "0", "offset": "001-0001-000000000000000000"}
SHUT_DOWN = answer(200, {"cursor": CURSOR, "info": {"debug": "Server is shutting down"}}, end="\n")
ENDED = answer(200, None)
FAULTS = {
    "refused": REFUSED,
    "lost": LOST,
    "cut": cut(40),
    "unavailable": status(503),
    "asked to come at once": status(503, retry_after_s=0),
    "gateway": status(502),
    "shut down": SHUT_DOWN,
    "ended": ENDED,
}
OF_STREAMS = {"shut down", "ended"}
ROWS = pa.table({"order": [str(n) for n in range(EVENTS)], "amount": range(EVENTS)})


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Lets pauses be short, and batches, pages and commits small."""
    monkeypatch.setattr("rioni.client.retries.WAIT_FIRST_S", 0.001)
    monkeypatch.setattr("rioni.client.retries.WAIT_MAX_S", 0.005)
    monkeypatch.setattr("rioni.client.ranges.BATCH_EVENTS", 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A broker that lets streams be open whose connections were lost."""
    many = {"RIONI_STREAMS_PER_PARTITION_MAX": "100"}
    with running_server(tmp_path_factory.mktemp("data"), "--workers", "1", environment=many) as running:
        yield running


@pytest.fixture
def way(server):
    with faulty_way.faulty_way(server.url) as way:
        yield way


class Place(NamedTuple):
    """The place at which a tool works: broker, event type and folder."""

    url: str
    retry_s: float
    name: str
    client: object
    folder: object

    def options(self, **more):
        return parse_options(
            {"url": self.url, "retry_s": str(self.retry_s), "events_per_task": "9", "events_per_request": "7"} | more
        )


def archive(at: Place):
    lake = ArchiveUnderTest(url=at.url, to=str(at.folder), format_="delta")
    tables = open_lake("delta", parse_location(lake.to), None)
    with Client(at.url, retry_s=at.retry_s) as client:
        work = Archive(client, tables, [at.name], CommitLimits(events=9), ArchiveMetrics(), keeps_json=True)
        done, failed = work.archive(lambda: False)
    for ex in failed.values():
        raise ex
    return done[at.name], lake.archived(at.name)


def rows_of(reader, parts):
    return sorted(
        (row["_partition"], row["_offset"], row["amount"])
        for part in parts
        for batch in reader.read(part)
        for row in batch.to_pylist()
    )


def read(at: Place):
    options = at.options(event_type=at.name)
    reader = EventBatchReader(options, table_schema(options, [at.name]))
    return rows_of(reader, reader.partitions())


def stream(at: Place):
    body = {"owning_application": "spark", "event_types": [at.name], "read_from": "begin"}
    group = {"consumer_group": at.folder.name}
    subscription = at.client.post("/subscriptions", json=body | group).json()["id"]
    options = at.options(subscription=subscription, events_per_batch="18")
    reader = EventStreamReader(options, table_schema(options, [at.name]))
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        found += rows_of(reader, reader.partitions(start, end))
        reader.commit(end)
        start = end
    [stats] = at.client.get(f"/subscriptions/{subscription}/stats").json()["items"]
    return found, sum(each["unconsumed_events"] for each in stats["partitions"])


def log(at: Place):
    reader = LogReader(at.options(), SCHEMA.names)
    reader._query["resource"] = f"event-type:{at.name}"
    return [row for batch in reader.read(None) for row in batch.to_pylist()]


def write(at: Place):
    target = create_orders(at.client, partition_strategy="random", default_statistic=None)
    schema = from_arrow_schema(ROWS.schema)
    options = at.options(event_type=target)
    publish(options, schema, at.folder.name, PRESENT, iter(ROWS.to_batches()), has_metadata=True)
    return [json.loads(each)["amount"] for each in stored(at.client, target)]


TOOLS = {"archive": archive, "batch": read, "stream": stream, "log": log, "writer": write}


@pytest.fixture(scope="module")
def source(server):
    return made_source(server)


def made_source(server):
    """An event type with events, and with a place in between that has none."""
    with server.client() as client:
        name = create_orders(client, cleanup_policy="compact", partition_strategy="random", default_statistic=None)
        body = client.get(f"/event-types/{name}").json()
        for number in range(5):
            client.put(f"/event-types/{name}", json=body | {"labels": {"number": str(number)}}).raise_for_status()
        for number in range(EVENTS):
            key = f"0d1b6f0e-3c52-4d8c-9b50-{number:012}"
            metadata = {"eid": key, "occurred_at": PRESENT, "partition_compaction_key": key}
            event = {"order": str(number), "amount": number, "metadata": metadata}
            publish_orders(client, name, event)
            if number == DELETED:
                client.post(f"/event-types/{name}/deleted-events", json=[event]).raise_for_status()
        return name


@pytest.fixture
def work(way, source, client, tmp_path):
    """Runs a tool on a way with faults; returns its result, and the requests that it made."""
    numbers = itertools.count()

    def run(tool, fault_of=lambda _number, _request: None, retry_s=RETRY_S):
        way.script(fault_of)
        folder = tmp_path / f"{tmp_path.name}-{next(numbers)}"
        return tool(Place(way.url, retry_s, source, client, folder)), [*way.requests]

    return run


def places(count, every):
    """Numbers below a count, at least one of them."""
    return range(random.randrange(min(every, count)), count, every)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_an_outage_that_begins_at_any_request_changes_nothing(tool, fault, work):
    expected, requests = work(tool)
    others = {}
    for begin in places(len(requests), BEGIN_EVERY):

        def fails(number, request, begin=begin):
            of_all = fault not in OF_STREAMS or ("GET" in request and "/events?" in request)
            return begin <= number < begin + OUTAGE and of_all and FAULTS[fault]

        found, made = work(tool, fails)
        if found != expected:
            others[begin, requests[begin]] = found, made
    assert others == {}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_an_answer_that_is_cut_off_at_any_byte_changes_nothing(tool, work, way):
    expected, requests = work(tool)
    sizes = dict(way.answered_bytes)
    assert len(sizes) == len(requests)
    others = {}
    for number, size in sizes.items():
        for end in places(size, CUT_EVERY):
            found, _ = work(tool, lambda n, _, number=number, end=end: n == number and cut(end))
            if found != expected:
                others[number, requests[number], end] = found
    assert others == {}


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_an_outage_that_does_not_end_is_an_error_that_says_for_how_long_it_was_tried(tool, work):
    _, requests = work(tool)
    for begin in {0, len(requests) - 1}:
        with pytest.raises(ClientError, match=r"does not answer: .*tried [0-9]+ times in .* s, since 20"):
            work(tool, lambda number, _, begin=begin: number >= begin and REFUSED, retry_s=1)


@pytest.mark.parametrize("code", [401, 403, 500])
@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_what_would_be_refused_again_is_an_error_at_once(tool, code, work, way):
    _, requests = work(tool)
    for begin in range(0, len(requests), BEGIN_EVERY):
        with pytest.raises(ClientError, match=f"{code} No"):
            work(tool, lambda number, _, begin=begin: number >= begin and status(code))
        assert len(way.requests) == begin + 1


@pytest.mark.parametrize("tool", [archive, read])
def test_an_event_type_that_was_created_again_meanwhile_is_not_read_on(tool, way, client, tmp_path):
    name = create_orders(client, partition_strategy="random", default_statistic=None)
    publish_orders(client, name, *({"order": str(n), "amount": n} for n in range(EVENTS)))

    def again(_, request):
        if "/events?" in request:
            body = client.get(f"/event-types/{name}").json()
            assert client.delete(f"/event-types/{name}").status_code == 200
            assert client.post("/event-types", json=body).status_code == 201
            return REFUSED
        return None

    way.script(again)
    with pytest.raises(RangeError, match=f"{name} was deleted and created again"):
        tool(Place(way.url, RETRY_S, name, client, tmp_path / "lake"))


class Restarting:
    """A broker at one address that is ended and started again."""

    def __init__(self, data, stack) -> None:
        self._data, self._stack, self._port = data, stack, "0"
        self._start()

    def _start(self) -> None:
        self.running = self._stack.enter_context(running_server(self._data, "--workers", "1", "--port", self._port))
        self._port = str(urlsplit(self.running.url).port)

    def restart(self, end) -> None:
        getattr(self.running, end)()
        self._start()


@pytest.fixture(scope="module")
def restarting(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield Restarting(tmp_path_factory.mktemp("restarting"), stack)


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_a_broker_that_is_started_again_changes_nothing(tool, end, restarting, tmp_path):
    with faulty_way.faulty_way(restarting.running.url) as way, restarting.running.client() as client:
        at = Place(way.url, RETRY_S, made_source(restarting.running), client, tmp_path / f"{tool.__name__}-{end}")
        expected = tool(at)
        count = len(way.requests)
        for begin in places(count, length(count, 2)):
            # Streams that are open then are cut off, and this request waits until the broker is back.
            way.script(lambda number, _, begin=begin: number == begin and restarting.restart(end))
            assert tool(at._replace(folder=tmp_path / f"{tool.__name__}-{end}-{begin}")) == expected
