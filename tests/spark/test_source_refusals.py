"""Readers, archives and publishers report refusals in the words of the client."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rioni.client import Client, ClientError
from rioni.client.ranges import Place, Range, Reader
from rioni.lake.reader import event_type
from rioni.spark.log_source import SCHEMA, LogReader
from rioni.spark.options import parse_options
from rioni.spark.writer import NotPublished, publish
from tests.support.lake import PRESENT
from tests.support.scripted_server import Answer, scripted_server


PROBLEM = {"title": "Forbidden", "status": 403, "detail": "Access to orders is denied."}
CREATED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROWS = pa.table({"order": ["a", "b"]})
RESULTS = [
    {"publishing_status": "failed", "step": "validating", "detail": "#: it has no number"},
    {"publishing_status": "aborted", "step": "none"},
]


def options(url, **more):
    return parse_options({"url": url, "event_type": "orders", "retry_s": "0", **more})


def write(url, **more):
    publish(
        options(url, **more),
        from_arrow_schema(ROWS.schema),
        "job",
        PRESENT,
        iter(ROWS.to_batches()),
        has_metadata=False,
    )


def stream(url):
    with Client(url, attempts=1, retry_s=0) as client:
        reader = Reader(client, "orders", created_at=CREATED_AT)
        list(reader.read(Range("0", Place(1, 0), Place(1, 1), 1)))


def ask_client(url):
    with Client(url, attempts=1) as client:
        event_type(client, "orders")


TOOLS = {
    "streams": ("GET /event-types/orders/events", stream),
    "the audit log": ("GET /audit", lambda url: list(LogReader(options(url), SCHEMA.names).read(None))),
    "the writer": ("POST /event-types/orders/events", write),
    "the archive": ("GET /event-types/orders", ask_client),
}


@pytest.fixture
def server():
    with scripted_server() as running:
        yield running


@pytest.mark.parametrize(("request_", "ask"), TOOLS.values(), ids=TOOLS)
def test_a_refusal_has_the_clients_text(server, request_, ask):
    server.script(Answer(403, PROBLEM))
    with pytest.raises(ClientError) as caught:
        ask(server.url)
    assert str(caught.value) == f"{request_}: 403 Forbidden: Access to orders is denied."


@pytest.mark.parametrize(("request_", "ask"), TOOLS.values(), ids=TOOLS)
def test_an_answer_of_a_proxy_is_shown_in_part(server, request_, ask):
    server.script(Answer(404, b"<html>" + 2_000 * b"a"))
    with pytest.raises(ClientError) as caught:
        ask(server.url)
    assert str(caught.value) == f"{request_}: 404 Not Found: <html>{494 * 'a'}"


@pytest.mark.parametrize("status", [207, 422])
def test_events_that_are_refused_have_the_clients_text(server, status):
    server.script(Answer(status, RESULTS))
    with pytest.raises(NotPublished) as caught:
        write(server.url)
    assert str(caught.value) == "2 of 2 events were not stored in orders: validating: #: it has no number"


def test_a_batch_that_is_refused_has_the_clients_text(server):
    server.script(Answer(422, {"title": "Unprocessable Entity", "detail": "The key was used before."}))
    with pytest.raises(NotPublished) as caught:
        write(server.url)
    assert str(caught.value) == "POST /event-types/orders/events: 422 Unprocessable Entity: The key was used before."


def test_a_broker_that_stays_busy_is_named_with_its_reason(server):
    server.script(Answer(503, {"title": "Service Unavailable", "detail": "The queue is full."}))
    with pytest.raises(NotPublished) as caught:
        write(server.url, timeout_s="1")
    assert str(caught.value) == (
        f"{server.url} was too busy for 1 s: "
        "POST /event-types/orders/events: 503 Service Unavailable: The queue is full."
    )


@pytest.mark.parametrize("ask", [ask for _, ask in TOOLS.values()], ids=TOOLS)
def test_an_answer_that_breaks_off_is_no_answer(server, ask):
    server.script("drop")
    with pytest.raises(ClientError, match="does not answer"):
        ask(server.url)
