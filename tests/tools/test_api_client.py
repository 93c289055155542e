"""Whatever tools ask a broker for, a refusal has the client's text: method, path, status, title and detail."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rioni.client import Client, ClientError
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.timelines.position import TimelinePosition
from rioni.lake.broker import Broker
from rioni.spark.log_source import SCHEMA, LogReader
from rioni.spark.options import parse_options
from rioni.spark.writer import NotPublished, publish
from rioni.tools.api_client import RequestRefused, call, call_text
from rioni.tools.load_client import Server
from tests.support.lake import PRESENT
from tests.support.scripted_server import Answer, scripted_server


PROBLEM = {"title": "Forbidden", "status": 403, "detail": "Access to orders is denied."}
ROWS = pa.table({"order": ["a", "b"]})
RESULTS = [
    {"publishing_status": "failed", "step": "validating", "detail": "#: it has no number"},
    {"publishing_status": "aborted", "step": "none"},
]


def options(url, **more):
    return parse_options({"url": url, "event_type": "orders", **more})


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
    with Broker(Server(url)).stream("orders", "0", TimelinePosition(1, 0), 1) as batches:
        list(batches)


def ask_client(url):
    with Client(url) as client:
        client.event_types.get("orders")


TOOLS = {
    "a value": ("GET /event-types/orders", lambda url: call(Server(url), "GET", "/event-types/orders?x=1")),
    "a text": ("GET /log/key", lambda url: call_text(Server(url), "/log/key")),
    "a base path": ("GET /base/log/key", lambda url: call_text(Server(f"{url}/base"), "/log/key")),
    "the archive": ("GET /event-types/orders", lambda url: Broker(Server(url)).event_type("orders")),
    "streams": ("GET /event-types/orders/events", stream),
    "the audit log": ("GET /audit", lambda url: list(LogReader(options(url), SCHEMA.names).read(None))),
    "the writer": ("POST /event-types/orders/events", write),
    "the client": ("GET /event-types/orders", ask_client),
}


@pytest.fixture
def server():
    with scripted_server() as running:
        yield running


@pytest.mark.parametrize(("request_", "ask"), TOOLS.values(), ids=TOOLS)
def test_a_refusal_has_the_clients_text(server, request_, ask):
    server.script(Answer(403, PROBLEM))
    with pytest.raises((RioniError, ClientError)) as caught:
        ask(server.url)
    assert str(caught.value) == f"{request_}: 403 Forbidden: Access to orders is denied."


@pytest.mark.parametrize(("request_", "ask"), TOOLS.values(), ids=TOOLS)
def test_an_answer_of_a_proxy_is_shown_in_part(server, request_, ask):
    server.script(Answer(404, b"<html>" + 2_000 * b"a"))
    with pytest.raises((RioniError, ClientError)) as caught:
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


def test_an_answer_that_is_accepted_is_no_refusal(server):
    server.script(Answer(404, PROBLEM))
    assert call(Server(server.url), "GET", "/event-types/orders", accept=(404,)) == (404, PROBLEM)
    with pytest.raises(RequestRefused):
        call(Server(server.url), "GET", "/event-types/orders", accept=(409,))


@pytest.mark.parametrize("ask", [ask for _, ask in TOOLS.values()][:-1], ids=[*TOOLS][:-1])
def test_an_answer_that_breaks_off_is_no_answer(server, ask):
    server.script("drop")
    with pytest.raises(Unavailable, match="does not answer"):
        ask(server.url)


def test_an_error_of_what_reads_a_stream_is_not_taken_for_one_of_the_broker(server):
    def fail():
        with Broker(Server(server.url)).stream("orders", "0", TimelinePosition(1, 0), 1):
            raise OSError(28, "No space left on device")

    server.script(Answer(200, b""))
    with pytest.raises(OSError, match="No space left"):
        fail()
