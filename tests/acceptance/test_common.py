"""What holds for every request: registry contract 1."""

import socket

import pytest

from tests.acceptance.conftest import event, problem


def test_health_version_and_readiness(client):
    response = client.get("/health")
    assert (response.status_code, response.text) == (200, "OK")
    assert response.headers["content-type"].startswith("text/plain")
    assert client.get("/readyz").text == "OK"
    assert client.get("/version").json()["scm_source"] is None


def test_metrics_are_summed_over_the_workers(client, server, create, name):
    create(name)
    for _ in range(10):
        with server.client() as other:
            other.post(f"/event-types/{name}/events", json=[event()])
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert f'rioni_published_events_total{{event_type="{name}"}} 10.0' in response.text


def test_the_metrics_tell_of_streams_and_of_the_hub(client, server, create, name):
    create(name)
    client.post(f"/event-types/{name}/events", json=[event() for _ in range(3)])
    before = _metric(client, 'rioni_streamed_events_total{api="low-level"}')
    path = f"/event-types/{name}/events?batch_limit=3&stream_limit=3"
    with server.client() as other:
        other.get(path, headers={"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'})
    assert _metric(client, 'rioni_streamed_events_total{api="low-level"}') == before + 3
    assert _metric(client, 'rioni_streams{api="low-level"}') == 0
    assert _metric(client, "rioni_hub_stall_seconds") > 0


def _metric(client, name):
    """The value of a metric, 0 where nothing was counted yet."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].rpartition(" ")[2]) if lines else 0


def test_the_flow_id_is_echoed_or_made(client):
    assert client.get("/health", headers={"X-Flow-Id": "mine"}).headers["x-flow-id"] == "mine"
    made = client.get("/event-types/nope").headers["x-flow-id"]
    assert len(made) == 24
    assert made.isalnum()


def test_a_trailing_slash_is_tolerated_and_an_empty_segment_is_not(client, create, name):
    create(name)
    assert client.get(f"/event-types/{name}/").status_code == 200
    problem(client.get(f"/event-types//{name}"), 400)


def test_unknown_paths_and_verbs_are_problems(client):
    problem(client.get("/nope"), 404, "/nope")
    response = client.patch("/event-types")
    problem(response, 405, "Request method 'PATCH' not supported")
    assert "POST" in response.headers["allow"]


def test_compressed_bodies_are_for_posts_only(client):
    response = client.request("GET", "/event-types", headers={"Content-Encoding": "gzip"})
    problem(response, 406, "GET method doesn't support gzip content encoding")


def test_a_body_of_a_get_is_ignored(client):
    assert client.request("GET", "/event-types", json={"x": 1}).status_code == 200


def test_a_bearer_token_is_tolerated_while_authentication_is_off(client):
    assert client.get("/event-types", headers={"Authorization": "Bearer x"}).status_code == 200


def test_answers_are_compressed_if_asked(client, create, name):
    create(name)
    response = client.get(f"/event-types/{name}", headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert response.json()["name"] == name


SMUGGLING = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "a coding that only looks like chunked": b"Transfer-Encoding: xchunked\r\n",
    "space before the colon": b"Transfer-Encoding : chunked\r\n",
    "a sign in the length": b"Content-Length: +5\r\n",
    "an underscore in the length": b"Content-Length: 0_5\r\n",
    "a NUL in a value": b"X-Test: a\0b\r\n",
}


@pytest.mark.parametrize("header", SMUGGLING.values(), ids=SMUGGLING)
def test_ambiguous_requests_are_refused(server, header):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /event-types HTTP/1.1\r\nHost: x\r\n" + header + b"\r\nhello")
        answer = connection.recv(4096)
    assert answer.split(b" ")[1] in (b"400", b"501")
