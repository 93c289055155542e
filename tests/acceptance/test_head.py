"""HEAD and OPTIONS of every route (reference common#paths)."""

import re

import httpx
import pytest

from tests.acceptance.conftest import publish_orders
from tests.support.routes import routed
from tests.support.waiting import WAIT_S


ROUTES = sorted({route.partition(" ")[2] for route in routed()})
READABLE = sorted(route.partition(" ")[2] for route in routed() if route.startswith("GET "))
PARAMETERS = {"partition": "0", "version": "1.0.0", "level": "0", "rest": "000"}
OF_EACH_REQUEST = {"date", "x-flow-id", "x-nakadi-streamid"}
"""Headers that may differ; a stream of a subscription that is not opened has no id."""
WITHOUT_BODY = {"transfer-encoding", "connection"}
"""Headers about how a body is transferred, which HEAD may leave out (RFC 9110, chapter 9.3.2)."""


@pytest.fixture
def address(client, create, name, subscribe):
    """Returns the address of a route, with resources that exist if this test can make them."""
    create(name)
    publish_orders(client, name, "1")
    known = PARAMETERS | {"name": name, "subscription_id": subscribe(name)}

    def address(route):
        path = route
        for parameter in re.findall(r"{(\w+)}", route):
            path = path.replace(f"{{{parameter}}}", known.get(parameter, "unknown"))
        return path

    return address


def head_of_get(client, path, **options):
    """Status and headers of an answer to GET; what follows them is not read."""
    with client.stream("GET", path, **options) as response:
        return response.status_code, comparable(response.headers)


def comparable(headers):
    return {name: value for name, value in headers.items() if name not in OF_EACH_REQUEST | WITHOUT_BODY}


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/event-stream", "application/x-ndjson"])
@pytest.mark.parametrize("route", READABLE)
def test_head_answers_as_get_without_a_body(server, address, route, accept):
    with httpx.Client(base_url=server.url, timeout=WAIT_S, verify=False, headers={"Accept": accept}) as client:
        path = address(route)
        status, before = head_of_get(client, path)
        heads = [client.head(path) for _ in range(2)]
        _, after = head_of_get(client, path)
    # Some answers change with time, and metrics with each request.
    changing = {"content-length"} if route == "/metrics" else set()
    stable = {name for name, value in before.items() if after.get(name) == value} - changing
    for head in heads:
        assert head.status_code == status
        assert head.content == b""
        assert head.headers.keys() - OF_EACH_REQUEST - WITHOUT_BODY == before.keys()
        assert {name: head.headers[name] for name in stable} == {name: before[name] for name in stable}


def test_head_of_a_stream_takes_no_slot_and_no_partition(client, address):
    path = address("/subscriptions/{subscription_id}/events")
    streams = address("/subscriptions/{subscription_id}/stats")
    for _ in range(3):
        assert client.head(path).status_code == 200
    (item,) = client.get(streams).json()["items"]
    assert [each["state"] for each in item["partitions"]] == ["unassigned"]
    low_level = address("/event-types/{name}/events")
    # More than a client may have streams of a partition.
    assert {client.head(low_level).status_code for _ in range(12)} == {200}


def test_head_of_a_stream_is_refused_as_the_stream_would_be(client, address):
    path = address("/event-types/{name}/events")
    assert client.head(path, params={"batch_limit": "x"}).status_code == 400
    assert client.head(path, params={"cursors": "[]"}).status_code == 412
    assert client.head(address("/subscriptions/unknown/events")).status_code == 404


@pytest.mark.parametrize("route", ROUTES)
def test_options_and_refusals_name_all_methods(server, address, route):
    path = address(route)
    methods = {each.partition(" ")[0] for each in routed() if each.endswith(f" {route}")}
    expected = methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
    with httpx.Client(base_url=server.url, timeout=WAIT_S, verify=False) as client:
        options = client.options(path)
        assert options.status_code == 200
        refused = client.request("TRACE", path)
        assert refused.status_code == 405
        missing = client.head(path)
        assert (missing.status_code == 405) == ("GET" not in methods)
    for answer in (options, refused):
        assert set(answer.headers["Allow"].split(", ")) - {"OPTIONS"} == expected - {"OPTIONS"}
