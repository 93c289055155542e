"""Clients of the Nakadi API that others wrote: the examples of docs/clients."""

import sys
from pathlib import Path

import pytest
from pyNakadi import NakadiClient, NakadiException

from rioni.cli.cluster.cluster import fetch_jars, missing_programs
from tests.clients.conftest import output, unconsumed_events


HERE = Path(__file__).parent
FAHRSCHEIN = HERE / "fahrschein"
POM = FAHRSCHEIN / "pom.xml"
ORDERS = (1, 2, 3)
"""The orders in the published events."""


def test_pynakadi_creates_publishes_and_consumes(server, client):
    printed = output(sys.executable, HERE / "pynakadi" / "example.py", server.url)
    exists, invalid, *orders, unconsumed = printed.splitlines()
    assert exists.startswith("409 ")
    assert "EventType order.placed already exists." in exists
    assert invalid.startswith("422 ")
    assert "#/order: expected type: String, found: Integer" in invalid
    assert orders == [f"order {order} in partition 0" for order in ORDERS]
    assert unconsumed == "unconsumed: 0"
    assert unconsumed_events(client, "order.placed") == 0


@pytest.mark.parametrize(
    ("method", "argument", "status"), [("get_event_type_cursor_lag", [], 404), ("get_event_type_events_stream", 1, 400)]
)
def test_two_methods_of_pynakadi_ask_for_paths_that_the_api_does_not_have(server, method, argument, status):
    client = NakadiClient("none", server.url)
    with client.session, pytest.raises(NakadiException) as refused:
        getattr(client, method)("order.placed", argument)
    assert refused.value.code == status


@pytest.mark.skipif(bool(missing_programs(POM)), reason=missing_programs(POM))
def test_fahrschein_publishes_and_consumes(server, client):
    headers = {"Content-Type": "application/json"}
    definition = (FAHRSCHEIN / "event-type.json").read_bytes()
    assert client.post("/event-types", content=definition, headers=headers).status_code == 201
    printed = output("java", "-cp", fetch_jars(POM), FAHRSCHEIN / "Example.java", server.url)
    assert printed.splitlines() == [
        "published 3 events, partitions: 1",
        "aborted validating: ",
        "failed validating: #: required key [order] not found",
        '404: EventType "no.such-type" does not exist.',
        *_stream("subscription"),
        *_stream("low-level stream"),
    ]
    assert unconsumed_events(client, "order.shipped") == 0


def _stream(kind: str) -> list[str]:
    """The output of fahrschein's example for a stream."""
    return [*(f"{kind}: order {order} in partition 0" for order in ORDERS), f"{kind}: ended"]
