"""Input made to stop, to exhaust or to crash a broker: it is rejected, no other client waits, and no worker dies.

How long other requests waited is what the broker itself measures, `rioni_hub_stall_seconds`: the longest time that one
piece of work has blocked the rest of a worker. The effect of a busy machine shows in how long ordinary work takes.
"""

import gzip
import json
import os
import random
import re
import uuid
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import zstandard

from tests.acceptance.conftest import event, json_schema
from tests.support.builders import event_type_body
from tests.support.server import PROMETHEUS, running_server
from tests.support.waiting import WAIT_S


pytestmark = pytest.mark.slow

STALL_S_MAX = 0.05
ORDINARY_FACTOR = 4
"""The limit on a busy machine: this many times the stall that ordinary work causes there."""
CONTENTION_FACTOR = 4
RESIDENT_BYTES_MAX = 300_000_000
ROUNDS = 5


class Attack(NamedTuple):
    """A request, and the acceptable answers of a broker."""

    name: str
    method: str
    path: str
    body: bytes
    statuses: tuple[int, ...]
    headers: tuple[tuple[str, str], ...] = ()


# --- schemas ---


def nested(levels, keyword="properties"):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {keyword: {"a": schema} if keyword == "properties" else [schema]}
    return schema


def doubling(levels):
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(levels)}
    return {"definitions": definitions | {f"d{levels}": {}}, "properties": {"a": {"$ref": "#/definitions/d0"}}}


def cycles(lengths=(89, 97, 101)):
    definitions = {
        f"c{length}-{n}": {"properties": {"a": {"$ref": f"#/definitions/c{length}-{(n + 1) % length}"}}}
        for length in lengths
        for n in range(length)
    }
    properties = {f"p{length}": {"$ref": f"#/definitions/c{length}-0"} for length in lengths}
    return {"definitions": definitions, "properties": properties}


def under_long_names(schema):
    for _ in range(25):
        schema = {"properties": {"p" * 3_000: schema}}
    return schema


def patterns(count, pattern):
    return {"properties": {f"a{n}": {"pattern": pattern.replace("N", str(n))} for n in range(count)}}


REFUSED_SCHEMAS = {
    "huge": {"description": "x" * 300_000},
    "deep": nested(70),
    "deep composition": nested(70, "allOf"),
    "doubling references (S7)": doubling(40),
    "a cycle without progress": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "http (S3)": {"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}},
    "file (S3)": {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
    "data (S3)": {"properties": {"a": {"$ref": "data:application/json,{}"}}},
    "relative with an id (S3)": {"id": "http://127.0.0.1:1/", "properties": {"a": {"$ref": "x.json"}}},
    "look-around (S4)": patterns(1, "(?=a)b"),
    "back-reference (S4)": patterns(1, r"(a)\1"),
    "a huge automaton": patterns(1, "((a{1,1000}){1,1000}){1,1000}"),
    "many large automata": patterns(3_000, "((a{1,100}){1,50})N"),
    "many long patterns": patterns(240, "(a|b|[c-z]+)*" * 70 + "N"),
    "many short patterns": {"patternProperties": {f"^{n}": {} for n in range(9_000)}},
    "an unknown type (S10)": {"properties": {"a": {"type": "strnig"}}},
    "multipleOf 0 (S10)": {"properties": {"a": {"multipleOf": 0}}},
    "a wrong keyword type (S10)": {"properties": {"a": {"required": 7}}},
    "a broken pattern (S10)": patterns(1, "["),
    "below long names": under_long_names({"properties": {f"{n:x}": {} for n in range(9_000)}}),
    "too many formats": {"properties": {f"a{n}": {"format": "date-time"} for n in range(7_000)}},
    "many enumerated objects": {"properties": {"a": {"enum": [{"k": n} for n in range(15_000)]}}},
    "schemas beyond counting": {"properties": {f"a{n}": {} for n in range(15_000)}},
}
REFUSED_TEXTS = {
    "NaN (S10)": '{"maximum":NaN}',
    "1e999 (S10)": '{"maximum":1e999}',
    "10^400 (S10)": '{"maximum":1' + "0" * 400 + "}",
    "duplicate keys": '{"a":1,"a":2}',
    "lone surrogates": '{"title":"\\ud800"}',
    "a bracket for each byte": "[" * 200_000,
}
ACCEPTED_SCHEMAS = {
    "code in const (S1)": {"properties": {"a": {"const": 1, "definition_rule": '"+__import__("os").abort()+"'}}},
    "hostile names (S2)": {"properties": {"'\"\\{}\n\u2028__import__": {}, "a}}b{{": {"type": "string"}}},
    "references in all directions (S6)": cycles(),
    "self references (S6)": {"properties": {f"p{n}": {"$ref": "#"} for n in range(400)}},
    "nested as far as it goes (S8)": nested(30),
    "a thousand formats": {"properties": {f"a{n}": {"format": "date-time"} for n in range(1_000)}},
}


def creation(schema):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = event_type_body(name=f"test.attack-{uuid.uuid4().hex}", schema={"type": "json_schema", "schema": text})
    return json.dumps(body).encode()


def schema_attacks():
    for schemas, statuses in (
        (REFUSED_SCHEMAS, (422,)),
        (REFUSED_TEXTS, (400, 422)),
        (ACCEPTED_SCHEMAS, (201,)),
    ):
        for name, schema in schemas.items():
            yield Attack(f"schema: {name}", "POST", "/event-types", creation(schema), statuses)
    yield Attack("definition: larger than any", "POST", "/event-types", b" " * 3_000_000, (413,))
    yield Attack("definition: 100,000 levels (H4)", "POST", "/event-types", b"[" * 100_000, (400,))
    yield Attack("definition: many labels", "POST", "/event-types", labels(), (422,))
    yield Attack("cursors: many", "POST", "/event-types/test.plain/cursors-lag", cursors(5_000), (200, 413))


def labels():
    return json.dumps(event_type_body(name="test.labels", labels={f"-{n}": "" for n in range(100_000)})).encode()


def cursors(count):
    return json.dumps([{"partition": "0", "offset": "BEGIN"}] * count).encode()


# --- events ---

TARGETS = {
    "test.plain": {"properties": {"order_id": {"type": "string"}}},
    "test.patterns": patterns(1, "((a{1,100}){1,50})x$") | {"additionalProperties": {"pattern": "^(a+)+$"}},
    "test.states": {"properties": {"a": {"type": "array", "items": {"pattern": "a[ab]{2000}c"}}}},
    "test.names": {"patternProperties": {"((a{1,100}){1,50})x$": {}}},
    "test.formats": {"properties": {n: {"format": n} for n in ("email", "hostname", "uri", "ipv6", "date-time")}},
    "test.unique": {"properties": {"a": {"uniqueItems": True}, "b": {"multipleOf": 0.1}}},
    "test.branches": {"properties": {"a": {"items": {"anyOf": [{"required": [f"x{n}"]} for n in range(1_000)]}}}},
    "test.cases": {  # S9
        "definitions": {"Foo": {"type": "integer"}, "foo": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/Foo"}, "b": {"$ref": "#/definitions/foo"}},
    },
}


def publishing(name, target, *events, statuses=(422,)):
    batch = b"[%b]" % b",".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in events)
    return Attack(f"events: {name}", "POST", f"/event-types/{target}/events", batch, statuses)


def with_member(text):
    """An event with one more member, as bytes."""
    return json.dumps(event())[:-1].encode() + b',"a":' + text + b"}"


def event_attacks():
    letters = random.Random(7)
    noise = ["".join(letters.choices("ab", k=3_000)) for _ in range(300)]
    yield publishing("a catastrophic pattern (S4)", "test.patterns", event(b="a" * 900_000 + "!"))
    yield publishing("a pattern with many states", "test.patterns", event(a0="a" * 900_000))
    yield publishing("a pattern with many states, little by little", "test.states", event(a=noise))
    yield publishing("a name with many states", "test.names", event(**{"a" * 900_000: 1}))
    yield publishing("many events for many states", "test.patterns", *[event(a0="a" * 1_000) for _ in range(1_000)])
    for name in ("email", "hostname", "uri", "ipv6", "date-time"):
        yield publishing(f"a catastrophic {name} (S5)", "test.formats", event(**{name: "a@" * 400_000 + "."}))
    yield publishing("many equal numbers (S12)", "test.unique", event(a=[1] * 300_000))
    yield publishing("many different lists", "test.unique", event(a=[[n] for n in range(80_000)]), statuses=(200, 422))
    yield publishing("numbers and fractions (S10)", "test.unique", event(b=2**62), statuses=(200, 422))
    yield publishing("many values for many branches", "test.branches", event(a=[{}] * 200_000))
    yield publishing("definitions that differ in case (S9)", "test.cases", event(a="x", b="x"))
    yield publishing("definitions taken apart (S9)", "test.cases", event(a=1, b="x"), statuses=(200,))
    yield publishing("100,000 levels", "test.plain", with_member(b"[" * 100_000 + b"]" * 100_000), statuses=(400,))
    yield publishing("65 levels", "test.plain", with_member(b"[" * 65 + b"]" * 65), statuses=(400,))
    yield publishing("duplicate keys (H4)", "test.plain", with_member(b'{"x":1,"x":2}'), statuses=(400,))
    yield publishing("NaN (H4)", "test.plain", with_member(b"NaN"), statuses=(400,))
    yield publishing("2^64 (H9)", "test.plain", with_member(b"18446744073709551616"), statuses=(400,))
    yield publishing("a number of 100,000 digits", "test.plain", with_member(b"9" * 100_000), statuses=(400,))
    yield publishing("1e999", "test.plain", with_member(b"1e999"), statuses=(400,))
    yield publishing("2^63-1 (H9)", "test.plain", with_member(b"9223372036854775807"), statuses=(200,))
    yield publishing("many empty events", "test.plain", *[b"{}"] * 99_000)
    yield publishing("more events than a batch has", "test.plain", *[b"{}"] * 100_001, statuses=(413,))
    yield publishing("an event of 5 MB", "test.plain", event(a="x" * 5_000_000))
    yield publishing("5 MB for an unknown event type", "unknown", *[event(a="x" * 50_000)] * 100, statuses=(404,))
    yield publishing("5 MB of duplicate keys", "test.plain", *[with_member(b'{"x":1,"x":2}')] * 25_000, statuses=(400,))


def consumer_attacks():
    """Requests that keep a broker busy with cursors and parameters of consumers; none names an existing resource."""
    unknown = "/subscriptions/00000000-0000-0000-0000-000000000007"
    item = {"event_type": "test.plain", "partition": "9" * 20, "offset": "0", "cursor_token": ""}
    stream = (("X-Nakadi-StreamId", str(uuid.UUID(int=7))),)

    def sent(name, method, path, body, *statuses, headers=()):
        return Attack(f"consumers: {name}", method, path, json.dumps(body).encode(), statuses, headers)

    types = [f"x{number}" for number in range(20_000)]
    yield sent("many event types", "POST", "/subscriptions", {"owning_application": "x", "event_types": types}, 422)
    plain = {"owning_application": "x", "event_types": ["test.plain"], "read_from": "cursors"}
    yield sent("many initial cursors", "POST", "/subscriptions", plain | {"initial_cursors": [item] * 2_000}, 413, 422)
    yield sent("many commits", "POST", f"{unknown}/cursors", {"items": [item] * 2_000}, 404, headers=stream)
    yield sent("many resets", "PATCH", f"{unknown}/cursors", {"items": [item] * 2_000}, 404)
    yield sent("many partitions", "POST", f"{unknown}/events", {"partitions": [item] * 2_000}, 404)
    yield sent("many digits", "POST", "/event-types/test.plain/cursors-lag", [item | {"offset": "9" * 200_000}], 422)
    many = b"[%b]" % b",".join([b'{"partition":"0","offset":"0"}'] * 500)
    headers = (("X-Nakadi-Cursors", many.decode()),)
    yield Attack("consumers: many cursors", "GET", "/event-types/test.plain/events", b"", (412,), headers)


def bombs():
    path, spaces = "/event-types/test.plain/events", b"[" + b" " * 60_000_000 + b"]"
    for coding, data in (
        ("gzip", gzip.compress(spaces, 9)),
        ("zstd", zstandard.ZstdCompressor(level=19).compress(spaces)),
    ):
        yield Attack(f"bomb: {coding} (H5)", "POST", path, data, (413,), (("Content-Encoding", coding),))
        cut = data[: len(data) // 2]
        yield Attack(f"bomb: half of {coding}", "POST", path, cut, (400, 413), (("Content-Encoding", coding),))
    endless = gzip.compress(b"[" + b" " * 49_000_000, 9)
    yield Attack("bomb: white space without end", "POST", path, endless, (413,), (("Content-Encoding", "gzip"),))
    twice = gzip.compress(gzip.compress(spaces, 9), 9)
    yield Attack("bomb: gzip in gzip", "POST", path, twice, (400,), (("Content-Encoding", "gzip"),))


@pytest.fixture(scope="module")
def attacks():
    return [*schema_attacks(), *event_attacks(), *consumer_attacks(), *bombs()]


def test_no_attack_delays_others_exhausts_memory_or_ends_a_worker(attacks, tmp_path):
    """The best of some rounds, each with a new broker: a busy machine is no defect."""
    found = []
    for number in range(ROUNDS):
        with running_server(tmp_path / f"attacked-{number}", "--workers", "1") as server:
            ordinary_s = work(server)
            stalls_s = attack(server, attacks)
        allowed_s = max(STALL_S_MAX, ORDINARY_FACTOR * ordinary_s) * contention()
        guilty = {name: stall for name, stall in stalls_s.items() if stall > allowed_s}
        if not guilty:
            return
        found.append((allowed_s, next(iter(guilty.items())), max(guilty.values())))
    raise AssertionError(found)


def contention():
    """The factor by which other processes on this machine may lengthen a stall."""
    return max(1, CONTENTION_FACTOR * os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def work(server):
    """Let a broker do ordinary work; returns the longest stall."""
    with server.client() as client:
        for number in range(5):
            name = f"test.work-{number}"
            assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
            batch = [event(note="x" * 200) for _ in range(8_000)]
            assert client.post(f"/event-types/{name}/events", json=batch).status_code == 200
        return stall_s(client)


def attack(server, attacks):
    """Attack a broker; returns for each attack the longest stall up to its end."""
    workers = server.workers()
    stalls_s, wrong = {}, []
    with server.client() as client:
        for name, schema in TARGETS.items():
            body = event_type_body(name=name, schema=json_schema(**schema))
            assert client.post("/event-types", json=body).status_code == 201
            client.post(f"/event-types/{name}/events", json=[event()])
        resident = resident_bytes(workers[0])
        for each in attacks:
            response = client.request(each.method, each.path, content=each.body, headers=dict(each.headers))
            if response.status_code not in each.statuses:
                wrong.append((each.name, response.status_code, response.text[:200]))
            stalls_s[each.name] = stall_s(client)
        assert not wrong
        assert client.get("/health").text == "OK"
        assert client.post("/event-types/test.plain/events", json=[event()]).status_code == 200
        assert server.workers() == workers
        assert resident_bytes(workers[0]) - resident < RESIDENT_BYTES_MAX
    assert "Traceback" not in "".join(server.lines)
    return stalls_s


def stall_s(client):
    (value,) = re.findall(
        r"^rioni_hub_stall_seconds ([0-9.e+-]+)$", client.get("/metrics", headers=PROMETHEUS).text, re.MULTILINE
    )
    return float(value)


def resident_bytes(pid):
    (kilobytes,) = re.findall(r"VmRSS:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024


def test_integers_are_kept_digit_by_digit(client, create, name):
    """H9: no library turns them into floating-point numbers on the way."""
    create(name)
    payload = b"[9223372036854775807,-9223372036854775808,1.0000000000000000001,1E+2,-0.0]"
    assert client.post(f"/event-types/{name}/events", content=b"[%b]" % with_member(payload)).status_code == 200
    path = f"/event-types/{name}/events?batch_limit=1&stream_limit=1"
    answer = client.get(path, headers={"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'})
    assert payload in answer.content


def test_methods_that_clients_invent_do_not_grow_the_metrics(server):
    """The label of a method comes from a closed set."""

    def series():
        return httpx.get(f"{server.url}/metrics", headers=PROMETHEUS, timeout=WAIT_S).text.splitlines()

    with httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
        for number in range(200):
            assert client.request(f"M{number}X", "/event-types").status_code in (400, 405)
    assert [line for line in series() if 'method="OTHER"' in line]
    assert [line for line in series() if re.search('method="M[0-9]', line)] == []
