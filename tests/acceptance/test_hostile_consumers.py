"""Hostile requests of consumers: each gets its 4xx, no worker dies, and no internal error is logged.

Input made to exhaust the broker is in `test_attacks.py`, slow clients are in `test_deadlines.py`, requests that a
proxy may parse differently in `test_smuggling.py`, and clients that stop reading in `test_stream_limits.py`.
"""

import gzip
import json
import uuid

import httpx
import pytest

from tests.acceptance.conftest import rows
from tests.support.builders import event_type_body
from tests.support.server import open_stream
from tests.support.waiting import WAIT_S


ID = str(uuid.UUID(int=7))
DIGITS = "9" * 5_000
ALIEN = "\N{ARABIC-INDIC DIGIT ONE}"
SYNTAX = "incorrect syntax of X-nakadi-cursors header"
NUL = "U+0000"


@pytest.fixture(scope="module")
def known(server):
    """The names of an event type of one partition and of a subscription to it; no internal error may be logged."""
    name = f"test.hostile-{uuid.uuid4().hex[:8]}"
    defects, workers = logged(server), server.workers()
    with server.client() as client:
        assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
        body = {"owning_application": name, "event_types": [name]}
        yield name, client.post("/subscriptions", json=body).json()["id"]
        assert client.get("/health").text == "OK"
    assert logged(server) == defects
    assert set(workers) <= set(server.workers())


def logged(server):
    return sum("unexpected error" in line or "Traceback" in line for line in server.lines)


@pytest.fixture(scope="module")
def raw(server):
    """A client that accepts answers in HTML: those of the parser, before the API begins."""
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
        yield client


def cursors(*pairs):
    return json.dumps(
        [{"partition": partition, "offset": offset} for partition, offset in pairs], separators=(",", ":")
    )


@pytest.mark.parametrize(
    ("sent", "status", "text"),
    rows(
        ("nothing", "", 400, SYNTAX),
        ("hundreds for one partition", cursors(*[("0", "BEGIN")] * 400), 412, "more than one cursor for partition 0"),
        ("hundreds of partitions", cursors(*[(str(n), "BEGIN") for n in range(400)]), 412, "non existing partition 1"),
        ("thousands", cursors(*[(str(n), "BEGIN") for n in range(5_000)]), 431, "Request Header Fields Too Large"),
        ("nested", "[" * 8_000, 400, SYNTAX),
        ("nested to the end", "[" * 8_000 + "]" * 8_000, 400, SYNTAX),
        ("NaN", '[{"partition":"0","offset":NaN}]', 400, SYNTAX),
        ("infinite", '[{"partition":"0","offset":1e999}]', 400, SYNTAX),
        ("2^64", '[{"partition":"0","offset":18446744073709551616}]', 400, SYNTAX),
        ("lone surrogate", '[{"partition":"0","offset":"\\ud800"}]', 400, SYNTAX),
        ("no bytes of a text", b"\xff\xfe\xfd", 400, SYNTAX),
        ("bytes in a partition", b'[{"partition":"\xe9","offset":"BEGIN"}]', 412, "non existing partition"),
        ("bytes in an offset", b'[{"partition":"0","offset":"\xff"}]', 412, "invalid offset"),
        ("NUL", '[{"partition":"0","offset":"\\u0000"}]', 412, "invalid offset"),
        ("line feed", '[{"partition":"0","offset":"1\\n"}]', 412, "invalid offset"),
        ("5,000 digits of a partition", cursors((DIGITS, "BEGIN")), 412, "non existing partition"),
        ("5,000 digits of an offset", cursors(("0", DIGITS)), 412, "invalid offset"),
        ("19 digits of an offset", cursors(("0", "9" * 19)), 412, "invalid offset"),
        ("18 digits of an offset", cursors(("0", "9" * 18)), 412, "is unavailable as retention"),
        ("a partition with a leading zero", cursors(("00", "BEGIN")), 412, "non existing partition 00"),
        ("a negative partition", cursors(("-0", "BEGIN")), 412, "non existing partition -0"),
        ("a partition in exponents", cursors(("0e0", "BEGIN")), 412, "non existing partition 0e0"),
        ("two members of one name", '[{"partition":"9","partition":"0","offset":"x"}]', 412, "invalid offset x"),
    ),
)  # fmt: skip
def test_hostile_cursors_of_low_level_streams(raw, known, sent, status, text):
    value = sent if isinstance(sent, bytes) else sent.encode()
    answer = raw.get(f"/event-types/{known[0]}/events", headers=[(b"X-Nakadi-Cursors", value)])
    assert answer.status_code == status, answer.text
    assert text in answer.text


@pytest.mark.parametrize(
    ("query", "status"),
    rows(
        ("two signs", "batch_limit=--1", 400),
        ("a sign of each kind", "batch_limit=%2B-1", 400),
        ("digits of another script", f"batch_limit={ALIEN}", 400),
        ("3,500 digits", f"commit_timeout={'9' * 3_500}", 400),
        ("2^31", "max_uncommitted_events=2147483648", 400),
        ("hexadecimal", "batch_limit=0x1", 400),
        ("an exponent", "stream_timeout=1e3", 400),
        ("underscores", "batch_limit=1_0", 400),
        ("nothing", "batch_limit=", 400),
        ("two of them", "batch_limit=1&batch_limit=x", 400),
        ("NUL", "batch_limit=%00", 400),
        ("no bytes of a text", "batch_limit=%ff", 400),
        ("below zero", "max_uncommitted_events=-2147483647", 422),
    ),
)
@pytest.mark.parametrize("path", ["/subscriptions/{1}/events", "/event-types/{0}/events"])
def test_hostile_parameters_of_streams(raw, known, path, query, status):
    if "event-types" in path:
        query = query.replace("commit_timeout", "stream_limit").replace("max_uncommitted_events=-", "batch_limit=-")
        query = query.replace("max_uncommitted_events", "stream_keep_alive_limit")
    answer = raw.get(f"{path.format(*known)}?{query}")
    assert answer.status_code == status, answer.text


def item(**changes):
    return {"partition": "0", "offset": "0", "event_type": "{0}", "cursor_token": ""} | changes


CURSORS, EVENTS = "/subscriptions/{1}/cursors", "/subscriptions/{1}/events"
BODIES = rows(
    ("commit: nested", "POST", CURSORS, '{"items":' + "[" * 100_000, 400),
    ("reset: nested", "PATCH", CURSORS, '{"items":' + "[" * 100_000, 400),
    ("stream: nested", "POST", EVENTS, "[" * 100_000, 400),
    ("lag: nested", "POST", "/event-types/{0}/cursors-lag", "[" * 100_000, 400),
    ("commit: lone surrogate", "POST", CURSORS, '{"items":[{"offset":"\\ud800"}]}', 400),
    ("commit: a bomb", "POST", CURSORS, gzip.compress(b" " * 20_000_000), 413),
    ("stream: a bomb", "POST", EVENTS, gzip.compress(b" " * 20_000_000), 413),
    ("commit: larger than any", "POST", CURSORS, " " * 300_000, 413),
    ("commit: thousands", "POST", CURSORS, {"items": [item()] * 2_000}, 422),
    ("commit: 5,000 digits of a partition", "POST", CURSORS, {"items": [item(partition=DIGITS)]}, 422),
    ("commit: 5,000 digits of an offset", "POST", CURSORS, {"items": [item(offset=DIGITS)]}, 422),
    ("commit: NUL", "POST", CURSORS, {"items": [item(event_type="\0")]}, 422),
    ("reset: 5,000 digits of a partition", "PATCH", CURSORS, {"items": [item(partition=DIGITS)]}, 422),
    ("reset: NUL", "PATCH", CURSORS, {"items": [item(offset="\0")]}, 422),
    ("reset: thousands of event types", "PATCH", CURSORS,
     {"items": [item(event_type=f"x{n}") for n in range(2_000)]}, 422),
    ("reset: a shift of 2^64", "PATCH", CURSORS, {"items": [item(shift=2**64)]}, 400),
    ("shift: 2^64", "POST", "/event-types/{0}/shifted-cursors", [item(shift=2**64)], 400),
    ("shift: 5,000 digits", "POST", "/event-types/{0}/shifted-cursors",
     '[{"partition":"0","offset":"0","shift":' + DIGITS + "}]", 400),
    ("shift: as far as it goes", "POST", "/event-types/{0}/shifted-cursors", [item(shift=2**62)], 422),
    ("lag: 5,000 digits of a partition", "POST", "/event-types/{0}/cursors-lag", [item(partition=DIGITS)], 422),
    ("lag: thousands", "POST", "/event-types/{0}/cursors-lag", [item(offset="BEGIN")] * 2_000, 413),
    ("stream: digits in a text", "POST", EVENTS, {"batch_limit": DIGITS}, 400),
    ("stream: two signs", "POST", EVENTS, {"batch_limit": "+-1"}, 400),
    ("stream: 2^70", "POST", EVENTS, {"batch_limit": 2**70}, 400),
    ("stream: thousands of partitions", "POST", EVENTS,
     {"partitions": [{"event_type": "{0}", "partition": str(n)} for n in range(3_000)]}, 422),
    ("subscription: thousands of event types", "POST", "/subscriptions",
     {"owning_application": "x", "event_types": [f"x{n}" for n in range(20_000)]}, 422),
    ("subscription: hundreds of cursors", "POST", "/subscriptions",
     {"owning_application": "x", "event_types": ["{0}"], "read_from": "cursors",
      "initial_cursors": [item()] * 999}, 422),
    ("subscription: NUL in the application", "POST", "/subscriptions",
     {"owning_application": "\0", "event_types": ["{0}"]}, 422),
    ("subscription: NUL in the group", "POST", "/subscriptions",
     {"owning_application": "x", "consumer_group": "\0", "event_types": ["{0}"]}, 422),
    ("subscription: NUL in an event type", "POST", "/subscriptions",
     {"owning_application": "x", "event_types": ["\0"]}, 422),
)  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status"), BODIES)
def test_hostile_bodies(raw, known, method, path, body, status):
    """Reference common#body-limits."""
    content = body if isinstance(body, bytes | str) else json.dumps(body).replace("{0}", known[0])
    coding = {"Content-Encoding": "gzip"} if isinstance(body, bytes) else {}
    headers = {"X-Nakadi-StreamId": ID} | coding
    answer = raw.request(method, path.format(*known), content=content, headers=headers)
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    rows(
        ("NUL in an id", "/subscriptions/%00", 400, NUL),
        ("NUL in a name", "/event-types/{0}%00/partitions", 400, NUL),
        ("NUL in a filter", "/subscriptions?owning_application=%00", 400, NUL),
        ("NUL in a token", "/subscriptions?token=F%00", 400, NUL),
        ("NUL in an offset", "/event-types/{0}/partitions/0?consumed_offset=%00", 400, NUL),
        ("a way out of the directory", "/subscriptions/..%2f..%2fetc%2fpasswd", 404, ""),
        ("no bytes of a text", "/subscriptions/%ff%fe", 404, "does not exist"),
        ("an offset beyond every database", f"/subscriptions?offset={'9' * 30}", 400, "is not an integer"),
        ("an offset as far as it goes", f"/subscriptions?offset={'9' * 18}", 200, '"items":[]'),
        ("a limit of another script", f"/subscriptions?limit={ALIEN}", 400, "is not an integer"),
        ("a limit with underscores", "/subscriptions?limit=1_0", 400, "is not an integer"),
        ("hundreds of event types", "/subscriptions?" + "event_type=a&" * 250, 200, '"items":[]'),
        ("a partition of 3,000 digits", f"/event-types/{{0}}/partitions/{'9' * 3_000}", 404, "partition not found"),
        ("cursors that are no text", "/event-types/{0}/partitions?cursors=%ff%fe", 422, "malformed cursors"),
        ("a line longer than any", f"/subscriptions?token=F{'x' * 9_000}", 414, ""),
    ),
)  # fmt: skip
def test_hostile_paths_and_queries(raw, known, path, status, text):
    """Reference common#paths, common#query-parameters."""
    answer = raw.get(path.format(*known))
    assert answer.status_code == status, answer.text[:300]
    assert text in answer.text


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    rows(
        ("no bytes of a text", {"X-Nakadi-StreamId": b"\xff\xe9"}, 422, "has to be valid UUID"),
        ("10,000 characters", {"X-Nakadi-StreamId": "x" * 10_000}, 422, "has to be valid UUID"),
        ("a UUID in braces", {"X-Nakadi-StreamId": f"{{{ID}}}"}, 422, f"Session with stream id {{{ID}}} not found"),
        ("a UUID in capitals", {"X-Nakadi-StreamId": ID.replace("-", "").upper()}, 422, "not found"),
        ("nothing", {"X-Nakadi-StreamId": ""}, 422, "has to be valid UUID"),
        ("more headers than fit", {f"X-{number}": "x" for number in range(200)}, 431, ""),
    ),
)
def test_hostile_headers_of_commits(raw, known, headers, status, text):
    body = json.dumps({"items": [item(event_type=known[0])]})
    answer = raw.post(f"/subscriptions/{known[1]}/cursors", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert text in answer.text


@pytest.mark.parametrize("sent", [b"\xff", b"{", b'"x"', b"7", b"[7]", b'[{"partition":7}]', b"[" * 5_000])
@pytest.mark.parametrize("path", ["/subscriptions/{1}/events", "/event-types/{0}/events"])
def test_hostile_stream_ids_of_browsers(raw, known, path, sent):
    headers = [(b"Accept", b"text/event-stream"), (b"Last-Event-ID", sent)]
    assert raw.get(path.format(*known), headers=headers).status_code in (400, 412)


def test_the_owner_of_the_partition_may_commit_thousands_of_cursors(client, known):
    name, subscription_id = known
    with open_stream(client, f"/subscriptions/{subscription_id}/events?batch_flush_timeout=1") as stream:
        stream.batch()
        items = [item(event_type=name, offset=str(number % 1_000)) for number in range(2_000)]
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        answer = client.post(f"/subscriptions/{subscription_id}/cursors", json={"items": items}, headers=headers)
    assert answer.status_code == 200
    results = [each["result"] for each in answer.json()["items"]]
    assert results == ["committed"] * 1_000 + ["outdated"] * 1_000
