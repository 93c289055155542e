"""Rules that apply to every request: reference common#requests.

Source: reference common#responses, common#problems, operations#service-endpoints.
"""

import json
import re

import pytest

from tests.acceptance.conftest import event, problem, rows
from tests.support.builders import SCHEMA, event_type_body
from tests.support.waiting import wait_until


pytestmark = pytest.mark.both_modes


def test_health_version_and_readiness(client):
    """Reference operations#health, operations#version."""
    response = client.get("/health")
    assert (response.status_code, response.text) == (200, "OK")
    assert response.headers["content-type"].startswith("text/plain")
    for path, checked in (("/livez", {"housekeeping"}), ("/readyz", {"database", "log", "disk"})):
        answer = client.get(path)
        assert answer.status_code == 200
        body = answer.json()
        assert (body["status"], bool(body["worker"])) == ("ok", True)
        assert checked <= body["checks"].keys()
        assert {each["status"] for each in body["checks"].values()} <= {"ok", "warning"}
    assert client.get("/version").json()["scm_source"] is None


def test_metrics_are_summed_over_the_workers(client, server, create, name):
    """Reference operations#metrics-formats."""
    create(name)
    for _ in range(10):
        with server.client() as other:
            other.post(f"/event-types/{name}/events", json=[event()])
    response = client.get("/metrics")
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"version", "gauges", "counters", "histograms", "meters", "timers"}
    assert server.metric(f'rioni_published_events_total{{event_type="{name}"}}') == 10
    assert server.metric('rioni_publish_seconds_count{slo_bucket="<5K"}') >= 10


def test_prometheus_gets_its_own_formats(client):
    """Reference operations#metrics-formats."""
    for media_type in ("text/plain", "application/openmetrics-text"):
        response = client.get("/metrics", headers={"Accept": f"{media_type};q=0.5,*/*;q=0.1"})
        assert response.headers["content-type"].startswith(f"{media_type}; version=")
        assert "rioni_worker_info{" in response.text
    assert (
        "Metrics are application/json"
        in problem(client.get("/metrics", headers={"Accept": "text/html"}), 406)["detail"]
    )


def test_the_metrics_of_a_deleted_event_type_are_removed(client, server, create, name):
    """Reference operations#metric-series."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event()])
    series = f'rioni_published_events_total{{event_type="{name}"}}'
    assert server.metric(series) == 1
    client.delete(f"/event-types/{name}")
    wait_until(lambda: not server.metric(series))


def test_the_metrics_include_streams_and_the_hub(client, server, create, name):
    create(name)
    client.post(f"/event-types/{name}/events", json=[event() for _ in range(3)])
    before = server.metric('rioni_streamed_events_total{api="low-level"}')
    path = f"/event-types/{name}/events?batch_limit=3&stream_limit=3"
    with server.client() as other:
        other.get(path, headers={"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'})
    assert server.metric('rioni_streamed_events_total{api="low-level"}') == before + 3
    # A stream whose client has gone without a word ends a second later: another test may have left one.
    wait_until(lambda: server.metric('rioni_streams{api="low-level"}') == 0)
    assert server.metric("rioni_hub_stall_seconds") > 0


def test_an_empty_answer_has_no_content_type(client, create, name):
    """Reference common#empty-responses."""
    body = event_type_body(name=create(name))
    for answer in (
        client.post(f"/event-types/{name}/events", json=[event()]),
        client.put(f"/event-types/{name}", json=body),
        client.delete(f"/event-types/{name}"),
    ):
        assert (answer.status_code, answer.content) == (200, b"")
        assert "content-type" not in answer.headers
    assert client.get("/event-types").headers["content-type"] == "application/json"


def test_the_flow_id_is_echoed_or_generated(client):
    assert client.get("/health", headers={"X-Flow-Id": "mine"}).headers["x-flow-id"] == "mine"
    made = client.get("/event-types/nope").headers["x-flow-id"]
    assert len(made) == 24
    assert made.isalnum()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "detail"),
    rows(
        ("trailing slash", "GET", "/event-types/", {}, 200, None),
        ("empty segment", "GET", "/event-types//x", {}, 400, "/event-types//x"),
        ("empty segment before a known one", "GET", "/event-types/x//schemas", {}, 400, "/event-types/x//schemas"),
        (
            "compressed GET",
            "GET",
            "/event-types",
            {"Content-Encoding": "gzip"},
            406,
            "GET method doesn't support gzip",
        ),
        (
            "compressed PUT",
            "PUT",
            "/event-types/x",
            {"Content-Encoding": "zstd"},
            406,
            "PUT method doesn't support",
        ),
        ("compressed DELETE", "DELETE", "/event-types/x", {"Content-Encoding": "x"}, 406, "DELETE method doesn't"),
        ("POST is no gzip", "POST", "/event-types", {"Content-Encoding": "gzip"}, 400, "Not in GZIP format"),
        ("POST is no zstd", "POST", "/event-types", {"Content-Encoding": "zstd"}, 400, "Not in ZSTD format"),
        ("unknown coding is ignored", "POST", "/event-types", {"Content-Encoding": "br"}, 422, 'Field "name"'),
        ("unknown path", "GET", "/nope", {}, 404, "/nope"),
        ("wrong verb", "PATCH", "/event-types", {}, 405, "Request method 'PATCH' not supported"),
        ("wrong query", "GET", "/event-types/x/schemas?limit=abc", {}, 400, "limit: 'abc' is not an integer"),
        ("a parameter twice", "GET", "/event-types?limit=1&limit=2", {}, 400, "limit is given 2 times"),
        ("a switch twice", "GET", "/audit?states=true&states=false", {}, 400, "states is given 2 times"),
        ("a filter twice", "GET", "/audit?actor=jane&actor=bob", {}, 400, "actor is given 2 times"),
        ("a parameter of streams twice", "GET", "/event-types/x/events?batch_limit=1&batch_limit=2", {}, 400, None),
        ("a list", "GET", "/subscriptions?event_type=a&event_type=b", {}, 200, None),
        ("a path that is not UTF-8", "PUT", "/settings/blacklist/CONSUMER_APP/%FF", {}, 400, "must be UTF-8"),
        ("a cut character", "PUT", "/settings/blacklist/CONSUMER_APP/%E2%82", {}, 400, "must be UTF-8"),
        ("a replacement character", "GET", "/event-types/%EF%BF%BD", {}, 404, "\ufffd"),
        ("a per cent sign alone", "GET", "/subscriptions?owning_application=%zz", {}, 200, None),
        (
            "body of a wrong type",
            "POST",
            "/event-types",
            {"Content-Type": "text/plain"},
            415,
            "'text/plain' is not",
        ),
        (
            "body with a charset",
            "POST",
            "/event-types",
            {"Content-Type": "Application/JSON;charset=utf8"},
            422,
            None,
        ),
        ("body of a derived type", "POST", "/event-types", {"Content-Type": "application/x+json"}, 422, None),
        ("body of no type", "POST", "/event-types", {}, 422, None),
        ("publishing takes any type", "POST", "/event-types/x/events", {"Content-Type": "text/plain"}, 400, "["),
        ("type of a GET is ignored", "GET", "/event-types", {"Content-Type": "text/plain"}, 200, None),
        ("unusable Accept", "GET", "/event-types", {"Accept": "text/html"}, 406, "application/json"),
        ("Accept with alternatives", "GET", "/event-types", {"Accept": "text/html, */*;q=0.1"}, 200, None),
        ("Accept problems", "GET", "/event-types", {"Accept": "application/problem+json"}, 200, None),
        ("health takes any Accept", "GET", "/health", {"Accept": "image/png"}, 200, None),
        ("token without authentication", "GET", "/event-types", {"Authorization": "Bearer x"}, 200, None),
    ),
)
def test_general_rules_of_requests(client, method, path, headers, status, detail):
    """Reference common#paths, common#content-types, common#content-encoding."""
    response = client.request(method, path, content=b"{}" if method in ("POST", "PUT") else None, headers=headers)
    assert response.status_code == status, response.text
    if status >= 400:
        problem(response, status, detail)
    assert ("allow" in response.headers) == (status == 405)


def test_a_problem_has_the_requested_media_type(client):
    """Reference common#problem-body."""
    for accept in ("*/*", "application/json", "application/problem+json"):
        answer = client.get("/event-types/nope", headers={"Accept": accept})
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json() == {"title": "Not Found", "status": 404, "detail": 'EventType "nope" does not exist.'}
    answer = client.get("/event-types/nope", headers={"Accept": "application/x.problem+json, application/json"})
    assert answer.headers["content-type"] == "application/x.problem+json"


def test_a_small_body_that_lacks_a_member_is_a_constraint_violation(client):
    """Reference common#problem-body, common#constraint-violations, common#problem-types."""
    assert problem(client.post("/settings/features", json={"enabled": True}), 400) == {
        "type": "https://zalando.github.io/problem/constraint-violation",
        "title": "Constraint Violation",
        "status": 400,
        "violations": [{"field": "feature", "message": "must not be null"}],
    }


def test_unknown_members_are_ignored_and_literals_accepted_in_any_case(client, name):
    """Reference common#json-bodies, common#enum-literals, schemas#schema-members."""
    schema = {"type": "JSON_SCHEMA", "schema": SCHEMA, "version": "7.0.0", "created_at": "x", "unknown": 1}
    changes = {"category": "BUSINESS", "compatibility_mode": "None", "audience": "Company_Internal"}
    body = event_type_body(name=name, schema=schema, **changes, created_at="x", updated_at=1, unknown={"a": []})
    created = client.post("/event-types", json=body).json()
    assert (created["category"], created["compatibility_mode"]) == ("business", "none")
    assert created["audience"] == "company-internal"
    assert (created["schema"]["type"], created["schema"]["version"]) == ("json_schema", "1.0.0")
    assert created["created_at"] == created["updated_at"] == created["schema"]["created_at"]
    assert "unknown" not in created
    # Reference common#dates
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created["created_at"])


@pytest.mark.parametrize(
    ("occurred_at", "status"),
    rows(
        ("upper case", "2026-11-20T10:00:00Z", 200),
        ("lower case", "2026-11-20t10:00:00z", 200),
        ("offset", "2026-11-20T10:00:00+07:00", 200),
        ("nine digits", "2026-11-20T10:00:00.123456789Z", 200),
        ("leap day", "2024-02-29T10:00:00Z", 200),
        ("ten digits", "2026-11-20T10:00:00.1234567890Z", 422),
        ("offset without colon", "2026-11-20T10:00:00+0700", 422),
        ("offset with seconds", "2026-11-20T10:00:00+07:00:30", 422),
        ("space", "2026-11-20 10:00:00Z", 422),
        ("no offset", "2026-11-20T10:00:00", 422),
        ("no seconds", "2026-11-20T10:00Z", 422),
        ("day 45", "2026-11-45T10:00:00Z", 422),
        ("no leap day", "2026-02-29T10:00:00Z", 422),
    ),
)
def test_dates_are_rfc_3339(client, dated, occurred_at, status):
    """Reference schemas#date-time."""
    batch = [event(metadata={"occurred_at": occurred_at})]
    response = client.post(f"/event-types/{dated}/events", json=batch)
    assert response.status_code == status
    if status == 422:
        assert response.json()[0]["detail"].startswith("#/metadata/occurred_at:must be a valid date-time")


@pytest.fixture(scope="module")
def dated(server):
    name = "test.dates"
    with server.client() as client:
        client.post("/event-types", json=event_type_body(name=name))
    return name


def test_a_body_may_be_sent_in_chunks(client, create, name):
    create(name)
    batch = json.dumps([event(), event()]).encode()
    pieces = (batch[start : start + 7] for start in range(0, len(batch), 7))
    assert client.post(f"/event-types/{name}/events", content=pieces).status_code == 200
    newest = client.get(f"/event-types/{name}/partitions/0").json()["newest_available_offset"]
    assert newest == "001-0001-000000000000000001"


@pytest.mark.parametrize("two", ["2", "2.0", "0.2e1", "2e0", "20e-1"])
def test_a_whole_number_may_be_written_in_any_way_and_is_kept_as_one(client, name, two):
    """JSON has no integers; the log keeps what is changed for ever."""
    at = f"/event-types/{name}"
    place = {"event_type": name, "partition": "0", "offset": "BEGIN"}

    def sent(method, path, body):
        answer = client.request(method, path, content=json.dumps(body).replace('"TWO"', two))
        assert answer.is_success, answer.text
        return answer

    sent("POST", "/event-types", event_type_body(name=name))
    sent("POST", f"{at}/events", [event() for _ in range(2)])
    sent("PUT", f"{at}/partition-count", {"partition_count": "TWO"})
    sent("POST", f"{at}/shifted-cursors", [place | {"shift": "TWO"}])
    sent("POST", f"{at}/cursor-distances", [{"initial_cursor": place | {"shift": "any"}, "final_cursor": place}])
    subscription = {"owning_application": "shop", "event_types": [name]}
    at_subscription = f"/subscriptions/{sent('POST', '/subscriptions', subscription).json()['id']}"
    sent("PATCH", f"{at_subscription}/cursors", {"items": [place | {"shift": "TWO"}]})
    sent("POST", f"{at_subscription}/dead-letters/redrive", {"limit": "TWO"})
    sent("POST", f"{at_subscription}/dead-letters/redrive/preview", {"limit": "TWO"})
    assert client.get(at).json()["default_statistic"]["read_parallelism"] == 2
    assert client.get(f"/audit?resource=event-type:{name}&states=true").status_code == 200


def test_a_body_of_a_get_is_ignored(client):
    assert client.request("GET", "/event-types", json={"x": 1}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_answers_are_compressed_on_request(client, create, name, method):
    """Reference common#compression."""
    create(name)
    path = f"/event-types/{name}" if method == "GET" else f"/event-types/{name}/schemas"
    body = {"type": "json_schema", "schema": SCHEMA.replace("{", '{"title":"' + "x" * 300 + '",', 1)}
    response = client.request(method, path, json=body, headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert response.json()
