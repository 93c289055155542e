"""Whatever a client sends, the answer is never a server error, and the broker keeps running."""

import json
import uuid
from collections import defaultdict
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.acceptance.conftest import event
from tests.support.avro import ORDER, batch, datum, envelope
from tests.support.builders import event_type_body


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=10),
    st.sampled_from(["\x00", "\ud7ff", "🛫", "BEGIN", "001-0001--1", "a" * 300, "../..", "%00", "'; --", "{}"]),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CURSOR = {"event_type": "fuzz.a", "partition": "0", "offset": "0", "cursor_token": "x"}
ATTRIBUTE = {"data_type": "*", "value": "*"}
LISTS = {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE], "writers": [ATTRIBUTE]}
SUBSCRIPTION_ID = str(uuid.UUID(int=1))
TARGETS = [
    ("POST", "/event-types", event_type_body(name="fuzz.a", annotations={"a": "b"}, authorization=LISTS)),
    ("PUT", "/event-types/fuzz.a", event_type_body(name="fuzz.a", options={"retention_time": 20_000_000})),
    ("POST", "/event-types/fuzz.a/events", [event(), event()]),
    ("POST", "/event-types/fuzz.a/deleted-events", [event(metadata={"partition_compaction_key": "a"})]),
    ("POST", "/event-types/fuzz.a/schemas", {"type": "json_schema", "schema": "{}"}),
    ("POST", "/event-types/fuzz.a/schemas/latest/compatibility-check", {"schema": "{}"}),
    ("POST", "/event-types/fuzz.a/cursor-distances", [{"initial_cursor": CURSOR, "final_cursor": CURSOR}]),
    ("POST", "/event-types/fuzz.a/shifted-cursors", [CURSOR | {"shift": 1}]),
    ("POST", "/event-types/fuzz.a/cursors-lag", [CURSOR]),
    ("POST", "/subscriptions", {"owning_application": "x", "event_types": ["fuzz.a"], "initial_cursors": [CURSOR]}),
    ("PUT", f"/subscriptions/{SUBSCRIPTION_ID}", {"owning_application": "x", "event_types": ["fuzz.a"]}),
    ("POST", f"/subscriptions/{SUBSCRIPTION_ID}/cursors", {"items": [CURSOR]}),
    ("PATCH", f"/subscriptions/{SUBSCRIPTION_ID}/cursors", {"items": [CURSOR]}),
    ("POST", f"/subscriptions/{SUBSCRIPTION_ID}/streams/x/failures", {"items": [CURSOR | {"reason": "x"}]}),
    ("POST", f"/subscriptions/{SUBSCRIPTION_ID}/events", {"batch_limit": 1, "partitions": [CURSOR]}),
    ("POST", "/settings/features", {"feature": "x", "enabled": True}),
    ("POST", "/settings/admins", LISTS),
]
QUERIES = [
    "/event-types?writer={}",
    "/event-types/fuzz.a/partitions?cursors={}",
    "/event-types/fuzz.a/partitions/0?consumed_offset={}",
    "/event-types/fuzz.a/schemas?limit={}",
    "/event-types/{}",
    "/event-types/{}/partitions",
    "/event-types/fuzz.a/events?batch_limit=0&stream_limit={}",
    f"/subscriptions/{SUBSCRIPTION_ID}/events?batch_limit=0&commit_timeout={{}}",
    "/subscriptions?limit={}",
    "/subscriptions?offset={}",
    "/subscriptions?token={}",
    "/subscriptions?reader={}",
    "/subscriptions/{}",
    "/subscriptions/{}/stats?show_time_lag={}",
    "/subscriptions/{}/ended-streams",
    "/storages/{}",
]
fuzzing = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@st.composite
def corrupted(draw, value):
    """A valid value of which one part is replaced, or missing."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(sorted(value)))
        rest = {other: member for other, member in value.items() if other != name}
        return rest if draw(st.integers(0, 5)) == 0 else rest | {name: draw(corrupted(value[name]))}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        return [draw(corrupted(value[0])), *value[1:]]
    return draw(JSON)


def check(response):
    assert response.status_code < 500 or response.status_code in (501, 503), response.text
    assert response.status_code < 300 or response.headers["content-type"] in (
        "application/problem+json",
        "application/json",
    )


@fuzzing
@given(st.data())
def test_corrupted_bodies_are_answered_by_client_errors(client, data):
    method, path, body = data.draw(st.sampled_from(TARGETS))
    content = json.dumps(data.draw(corrupted(body))).encode(errors="surrogatepass")
    check(client.request(method, path, content=content))


@fuzzing
@given(st.sampled_from(TARGETS), st.binary(max_size=40))
def test_bytes_that_are_no_json_are_answered_by_client_errors(client, target, content):
    check(client.request(target[0], target[1], content=content))


@fuzzing
@given(st.data())
def test_corrupted_avro_is_answered_by_client_errors(client, data):
    schema = {"type": "avro_schema", "schema": json.dumps(data.draw(corrupted(ORDER)))}
    check(client.post("/event-types", json=event_type_body(name="fuzz.avro", schema=schema)))
    check(client.post("/event-types/fuzz.avro/schemas", json=schema, params={"fetch": data.draw(st.booleans())}))
    body = bytearray(batch(envelope(datum({"order_id": "1", "amount": 1}), event_type="fuzz.avro")))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    headers = {"Content-Type": "application/avro-binary"}
    check(client.post("/event-types/fuzz.avro/events", content=bytes(body), headers=headers))


@fuzzing
@given(st.sampled_from(QUERIES), st.text(st.characters(codec="utf-8"), max_size=12))
def test_any_text_in_paths_and_queries_is_answered_by_client_errors(client, template, text):
    check(client.get(template.replace("{}", quote(text, safe=""))))


BORDERS = (
    "-1",
    "9" * 5_000,
    "[{}]",
    "\U0001f600",
    "999-0001-000000000000000000",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999999Z",
)
"""The first and the last values of types, and what lies beyond them."""
IN_PATHS = defaultdict(lambda: "0", name="fuzz.a", subscription_id=SUBSCRIPTION_ID, storage_id="default")
"""Values for the names in paths whose queries are tried."""


def test_borders_of_all_types_in_any_query_are_answered_by_client_errors(client):
    client.post("/event-types", json=event_type_body(name="fuzz.a"))
    asked = 0
    for path, item in client.get("/openapi.json").json()["paths"].items():
        for parameter in item.get("get", {}).get("parameters", ()):
            if parameter.get("in") != "query":
                continue
            for value in BORDERS:
                # It checks what GET checks, and opens no stream.
                answer = client.head(path.format_map(IN_PATHS), params={parameter["name"]: value})
                assert answer.status_code < 500 or answer.status_code in (501, 503), answer.request.url
                asked += 1
    assert asked > 50 * len(BORDERS), "the description of the API has few queries"


HEADERS = ["X-CONSUMER-TAG", "Idempotency-Key", "X-Flow-Id", "span_ctx", "traceparent", "tracestate", "Content-Type"]
# Control characters are rejected by the server before anything else.
HEADER_CHARACTERS = st.characters(max_codepoint=255, exclude_categories=("Cc",))
HEADER_TEXTS = st.text(HEADER_CHARACTERS, max_size=40) | st.sampled_from(
    [
        "consumer_subscription_id=",
        f"consumer_subscription_id={SUBSCRIPTION_ID}",
        '{"a":"\\ud800"}',
        '{"a":1e999}',
        "x" * 5_000,
    ]
)


@fuzzing
@given(st.sampled_from(["events", "deleted-events"]), st.dictionaries(st.sampled_from(HEADERS), HEADER_TEXTS))
def test_any_text_in_headers_is_answered_by_client_errors(client, path, headers):
    sent = [(name, text.strip().encode("latin-1")) for name, text in headers.items()]
    check(client.post(f"/event-types/fuzz.a/{path}", content=json.dumps([event()]), headers=sent))


CURSORS = corrupted([{"partition": "0", "offset": "001-0001--1"}]).map(json.dumps)


@fuzzing
@given(
    st.sampled_from(["/event-types/fuzz.a/events", f"/subscriptions/{SUBSCRIPTION_ID}/events"]),
    st.sampled_from(["X-Nakadi-Cursors", "Last-Event-ID", "Accept", "Accept-Encoding"]),
    HEADER_TEXTS | CURSORS,
)
def test_any_text_in_headers_of_streams_is_answered_by_client_errors(client, path, name, text):
    headers = {b"Accept": b"text/event-stream", name.encode(): text.strip().encode("latin-1")}
    response = client.get(f"{path}?batch_limit=0", headers=list(headers.items()))
    assert 400 <= response.status_code < 500, response.text


@fuzzing
@given(HEADER_TEXTS)
def test_any_stream_id_is_answered_by_client_errors(client, text):
    headers = [("X-Nakadi-StreamId", text.strip().encode("latin-1"))]
    check(client.post(f"/subscriptions/{SUBSCRIPTION_ID}/cursors", json={"items": [CURSOR]}, headers=headers))


def test_the_broker_keeps_running_afterwards(client):
    assert client.get("/health").text == "OK"
