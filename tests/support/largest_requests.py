"""The largest, deepest and longest that clients may send and ask for, by route."""

import gzip
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import httpx

from rioni.domain.avro.binary import MEDIA_TYPE as AVRO_BINARY
from rioni.http.bodies.parsing import CURSORS_MAX
from rioni.http.bodies.reading import DEFINITION_BYTES_MAX, JSON_BYTES_MAX
from tests.support import dead_letters
from tests.support.builders import event_type_body


ORDERS, ANYTHING, LARGE, DRAFTS, SMALL = "hub.orders", "hub.anything", "hub.large", "hub.drafts", "hub.small-{}"
SMALL_COUNT = 1_000
MEMBERS = 2_000
LINES = 990
"""Lines of each of the two schemas that are compared."""
EVENT_BYTES, BATCH_BYTES = 990_000, 49_000_000
SHOWN, DEAD_LETTERS = 50, 12
READ_BYTES_MAX = 60_000_000
"""The limit for an answer that does not end by itself."""


class Large(NamedTuple):
    """A request that is as large as a client may make it."""

    name: str
    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    status: int = 200
    """The expected status: a request that is refused at once would show nothing."""


class World(NamedTuple):
    """The data prepared on a server."""

    subscription: str
    failing: str
    """A subscription with dead letters."""
    csrf: str
    cookie: str
    """The console's cookie, with the secret of its forms."""
    position: int
    """The newest entry of the log."""


# --- what is there before ---


def prepare(client: httpx.Client, small: int = SMALL_COUNT) -> World:
    """Fill a server with as much as its answers may hold; the client gets the cookie of the console."""
    _create(client, ORDERS, schema=_schema({"properties": {"order_id": {"type": "string"}}}))
    _create(client, ANYTHING, category="undefined", enrichment_strategies=[], schema=_schema({}))
    _create(client, DRAFTS, category="undefined", enrichment_strategies=[], schema=_schema({}))
    _create(client, LARGE, compatibility_mode="none", schema=_schema(_lines("a")))
    for letter in "bc":
        _sent(client.post(f"/event-types/{LARGE}/schemas", json=_schema(_lines(letter))))
    for number in range(20):
        _sent(client.post(f"/event-types/{LARGE}/schemas", json=_schema({"description": f"{number}" * 120_000})))
    for number in range(small):
        _create(client, SMALL.format(number), category="undefined", enrichment_strategies=[], schema=_schema({}))
    body = {"owning_application": "shop", "event_types": [ANYTHING], "read_from": "begin"}
    subscription = _sent(client.post("/subscriptions", json=body)).json()["id"]
    body = {"owning_application": "fails", "event_types": [ANYTHING], "annotations": dead_letters.KEEPING}
    failing = _sent(client.post("/subscriptions", json=body)).json()["id"]
    for number in range(DEAD_LETTERS):
        # One batch of all would be larger than the broker takes.
        dead_letters.write(client, [dead_letters.dead_letter(failing, ANYTHING, number, {"text": "x" * 900_000})])
    for number in range(small):
        body = {"owning_application": "shop", "event_types": [SMALL.format(number)], "consumer_group": f"g{number}"}
        _sent(client.post("/subscriptions", json=body))
    for number in range(SHOWN):
        text = "<&'>" * (EVENT_BYTES // 4) if number % 2 else "x" * EVENT_BYTES
        _sent(client.post(f"/event-types/{ANYTHING}/events", json=[{"number": number, "text": text}]))
    cookie = client.get("/console").headers["Set-Cookie"].partition(";")[0]
    # httpx keeps it for itself: it is for HTTPS alone.
    found = re.search(r'name="csrf" value="([^"]+)"', client.get("/console/settings", headers={"Cookie": cookie}).text)
    assert found, "the console has no form"
    newest = _sent(client.get("/audit?limit=1")).json()["items"][0]["position"]
    return World(subscription, failing, found[1], cookie, newest)


def _create(client: httpx.Client, name: str, **members: Any) -> None:
    _sent(client.post("/event-types", json=event_type_body(name=name, **members)))


def _sent(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, answer.text[:500]
    return answer


def _schema(document: Any) -> dict[str, str]:
    return {"type": "json_schema", "schema": json.dumps(document)}


def _lines(letter: str) -> dict[str, Any]:
    """A schema of `LINES` lines, of which those of two letters have few in common."""
    return {"properties": {f"{letter}{number * 7 % LINES}": {} for number in range(LINES)}}


# --- requests ---


def _orders(number: int, **members: Any) -> dict[str, Any]:
    metadata = {"eid": str(uuid.UUID(int=number)), "occurred_at": "2026-11-20T10:00:00Z"}
    return {"order_id": str(number), "metadata": metadata, **members}


def _nested(depth: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def _definition(name: str, document: Any, **members: Any) -> bytes:
    return json.dumps(event_type_body(name=name, schema=_schema(document), **members)).encode()


SCHEMAS: Mapping[str, Any] = {
    "of many members": {"properties": {f"member_{number}": {"type": "string"} for number in range(MEMBERS)}},
    "of deep objects": _nested(30, {}, lambda inner: {"properties": {"a": inner}}),
    "of a large enum": {"properties": {"a": {"enum": [f"value-{number}" for number in range(15_000)]}}},
    "of a wide oneOf": {"properties": {"a": {"oneOf": [{"const": number} for number in range(1_500)]}}},
    "of patterns": {"properties": {f"m{n}": {"pattern": f"^{n}" + "[a-z]{1,20}" * 10} for n in range(60)}},
    "of references": {
        "properties": {"a": {"$ref": "#/definitions/d0"}},
        "definitions": {
            **{f"d{n}": {"properties": {"next": {"$ref": f"#/definitions/d{n + 1}"}}} for n in range(1_000)},
            "d1000": {},
        },
    },
    "of a long text": {"description": "x" * 240_000},
    "of long names": {"properties": {"n" * 800 + str(number): {} for number in range(200)}},
}


def definitions() -> Iterator[Large]:
    """Event types, schemas and subscriptions."""
    for number, (name, document) in enumerate(SCHEMAS.items()):
        body = _definition(f"hub.created-{number}", document, compatibility_mode="forward")
        yield Large(f"create an event type {name}", "POST", "/event-types", body, status=201)
        path = f"/event-types/hub.created-{number}"
        changed = _definition(f"hub.created-{number}", {**document, "title": "another"}, compatibility_mode="forward")
        yield Large(f"change an event type {name}", "PUT", path, changed)
        schema = json.dumps(_schema({**document, "title": "a third one"})).encode()
        yield Large(f"check a schema {name}", "POST", f"{path}/schemas/latest/compatibility-check", schema)
        yield Large(f"find a schema {name}", "POST", f"{path}/schemas?fetch=true", schema, status=404)


def other_definitions() -> Iterator[Large]:
    """Definitions that differ from a usual one in other respects."""
    padding = " " * (DEFINITION_BYTES_MAX - 10_000)
    body = _definition("hub.padded", {}).decode()
    yield Large("create with blanks", "POST", "/event-types", (body[:-1] + padding + "}").encode(), status=201)
    body = json.dumps(event_type_body(name="hub.unread") | {f"unknown_{n}": [n] for n in range(60_000)}).encode()
    yield Large("create with unknown members", "POST", "/event-types", body, status=201)
    people = [{"data_type": "user", "value": f"u{number}"} for number in range(999)]
    rights = {"admins": people[:333], "readers": people[333:666], "writers": people[666:]}
    yield Large(
        "create with many rights",
        "POST",
        "/event-types",
        _definition("hub.rights", {}, authorization=rights),
        status=201,
    )
    many = [{"data_type": "user", "value": f"u{number}"} for number in range(40_000)]
    rights = {"admins": many, "readers": [], "writers": []}
    yield Large(
        "create with too many rights",
        "POST",
        "/event-types",
        _definition("hub.no", {}, authorization=rights),
        status=422,
    )
    labels = {f"example.org/{'l' * 40}-{number}": "x" for number in range(30_000)}
    yield Large(
        "create with too many labels", "POST", "/event-types", _definition("hub.no", {}, labels=labels), status=422
    )
    for depth, status in ((60, 400), (500, 400), (100_000, 400)):
        deep = b'{"name":' + b"[" * depth + b"]" * depth + b"}"
        yield Large(f"create from {depth} brackets", "POST", "/event-types", deep, status=status)
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{n}", "type": ["null", "string"]} for n in range(2_000)],
    }
    avro = {"type": "avro_schema", "schema": json.dumps(record)}
    body = json.dumps(event_type_body(name="hub.avro", schema=avro)).encode()
    yield Large("create an event type of Avro", "POST", "/event-types", body, status=201)
    changed = {**record, "fields": [*record["fields"], {"name": "g", "type": "string", "default": ""}]}
    body = json.dumps({"type": "avro_schema", "schema": json.dumps(changed)}).encode()
    yield Large("change a schema of Avro", "POST", "/event-types/hub.avro/schemas", body, status=201)
    subscription = {"owning_application": "shop", "event_types": [f"hub.none-{n}" for n in range(15_000)]}
    yield Large(
        "subscribe to too many event types", "POST", "/subscriptions", json.dumps(subscription).encode(), status=422
    )
    cursors = [{"event_type": ANYTHING, "partition": str(n), "offset": "BEGIN"} for n in range(3_000)]
    subscription = {
        "owning_application": "shop",
        "event_types": [ANYTHING],
        "read_from": "cursors",
        "initial_cursors": cursors,
    }
    yield Large("subscribe with many cursors", "POST", "/subscriptions", json.dumps(subscription).encode(), status=200)
    for name, text in FILTERS.items():
        subscription = {"owning_application": "shop", "event_types": [ANYTHING], "consumer_group": name, "filter": text}
        yield Large(
            f"subscribe with a filter {name}", "POST", "/subscriptions", json.dumps(subscription).encode(), status=201
        )
    admins = {"admins": people, "readers": people, "writers": people}
    yield Large("set many administrators", "POST", "/settings/admins", json.dumps(admins).encode(), status=200)
    yield Large(
        "many unknown features",
        "POST",
        "/settings/features",
        json.dumps([{"feature": "x" * 99}] * 2_000).encode(),
        status=400,
    )


FILTERS: Mapping[str, str] = {
    "of many comparisons": " || ".join(["event.a == 1"] * 60),
    "of a large list": f"event.a in [{','.join(['1'] * 500)}]",
    "nested deeply": "(" * 20 + "event.a == 1" + ")" * 20,
    "with a long path": "has(event." + ".".join(["a"] * 25) + ")",
    "with macros": "event.a.all(x, x > 1 && x < 1000)",
    "with a long text": f"event.a == '{'x' * 1_900}'",
}


def evaluations() -> Iterator[Large]:
    """Filters on events."""
    for name, text in FILTERS.items():
        events = [{"a": [*range(600)]}] * 20 if name == "with macros" else [{"a": ["x" * 12_000]}] * 20
        body = json.dumps({"filter": text, "events": events, "event_types": [ANYTHING]}).encode()
        assert len(body) <= JSON_BYTES_MAX
        yield Large(f"evaluate a filter {name}", "POST", "/filter-evaluations", body)
    body = json.dumps({"filter": "event.a == 1", "events": [{}] * 60_000}).encode()
    yield Large("evaluate too many events", "POST", "/filter-evaluations", body, status=422)
    body = json.dumps({"filter": "event.a == 1", "events": [{"a": [0] * 80_000}]}).encode()
    yield Large("evaluate an event of many values", "POST", "/filter-evaluations", body)


def batches() -> Iterator[Large]:
    """Batches that are published, and deletions."""
    orders, anything = f"/event-types/{ORDERS}/events", f"/event-types/{DRAFTS}/events"
    tiny = b"[" + b",".join([b"{}"] * 100_000) + b"]"
    yield Large("publish 100,000 empty events", "POST", anything, tiny)
    yield Large(
        "publish too many empty events", "POST", anything, b"[" + b",".join([b"{}"] * 400_000) + b"]", status=413
    )
    values = b'[{"a":[' + b"1," * 400_000 + b"1]}]"
    yield Large("publish an event of many values", "POST", anything, values)
    members = json.dumps([{f"m{n}": n for n in range(60_000)}]).encode()
    yield Large("publish an event of many members", "POST", anything, members)
    long = json.dumps([{"x" * 990_000: 1}]).encode()
    yield Large("publish an event with a long name", "POST", anything, long)
    yield Large(
        "publish one event that is too large", "POST", anything, b'[{"a":"' + b"x" * 7_900_000 + b'"}]', status=422
    )
    deep = b'[{"a":' * 1 + b"[" * 60 + b"]" * 60 + b"}]"
    yield Large("publish a deep event", "POST", anything, deep)
    yield Large(
        "publish an event that is too deep",
        "POST",
        anything,
        b'[{"a":' + b"[" * 400_000 + b"]" * 400_000 + b"}]",
        status=400,
    )
    event = json.dumps({"text": '\\\u20ac"' * 30_000}).encode()
    yield Large("publish 49 MB", "POST", anything, b"[" + b",".join([event] * (BATCH_BYTES // (len(event) + 1))) + b"]")
    plain = json.dumps({"text": "x" * 900_000}).encode()
    body = b"[" + b",".join([plain] * (BATCH_BYTES // (len(plain) + 1))) + b"]"
    yield Large(
        "publish 49 MB in gzip",
        "POST",
        anything,
        gzip.compress(body[:9_000_000] + b"]", 1),
        {"Content-Encoding": "gzip"},
        400,
    )
    yield Large("publish blanks", "POST", anything, b"[" + b" " * BATCH_BYTES + b"]")
    yield Large("publish what is cut off", "POST", anything, body[:-2], status=400)
    checked = json.dumps([_orders(number) for number in range(50_000)]).encode()
    yield Large("publish 50,000 orders", "POST", orders, checked)
    wrong = json.dumps([_orders(number, order_id=number) for number in range(50_000)]).encode()
    yield Large("publish 50,000 wrong orders", "POST", orders, wrong, status=422)
    no_metadata = json.dumps([{"order_id": "1"}] * 99_999).encode()
    yield Large("publish orders without metadata", "POST", orders, no_metadata, status=422)
    yield Large("publish Avro that is none", "POST", orders, b"\x00" * 1_000_000, {"Content-Type": AVRO_BINARY}, 400)


def cursors() -> Iterator[Large]:
    """Positions and how far they are from each other."""
    path = f"/event-types/{ANYTHING}"
    places = [{"partition": "0", "offset": "BEGIN", "shift": 0}] * CURSORS_MAX
    yield Large("shift cursors", "POST", f"{path}/shifted-cursors", json.dumps(places).encode())
    places = [{"partition": "0", "offset": "BEGIN"}] * CURSORS_MAX
    yield Large("the lag of cursors", "POST", f"{path}/cursors-lag", json.dumps(places).encode())
    times = [{"partition": "0", "timestamp": "2026-11-20T10:00:00Z"}] * CURSORS_MAX
    yield Large("the lag of times", "POST", f"{path}/cursors-lag", json.dumps(times).encode())
    pairs = [{"initial_cursor": place, "final_cursor": place} for place in places]
    yield Large("distances of cursors", "POST", f"{path}/cursor-distances", json.dumps(pairs).encode())
    many = json.dumps([{"partition": "0"}] * 11_000).encode()
    for name in ("shifted-cursors", "cursors-lag", "cursor-distances"):
        yield Large(f"too many for {name}", "POST", f"{path}/{name}", many, status=413)
    wrong = json.dumps([{"partition": "0", "offset": "9" * 100}] * CURSORS_MAX).encode()
    yield Large("shift what are no cursors", "POST", f"{path}/shifted-cursors", wrong, status=422)


def of_subscription(world: World) -> Iterator[Large]:
    """Its cursors and dead letters."""
    path = f"/subscriptions/{world.subscription}"
    item = {"event_type": ANYTHING, "partition": "0", "offset": "001-0001-000000000000000000", "cursor_token": "x" * 36}
    body = json.dumps({"items": [item] * 1_500}).encode()
    yield Large(
        "commit many cursors", "POST", f"{path}/cursors", body, {"X-Nakadi-StreamId": str(uuid.UUID(int=1))}, 422
    )
    item = {"event_type": ANYTHING, "partition": "0", "offset": "BEGIN"}
    body = json.dumps({"items": [item] * 3_500}).encode()
    yield Large("reset many cursors", "PATCH", f"{path}/cursors", body, status=204)
    item = {"a": "b" * 10}
    yield Large(
        "reset unknown members", "PATCH", f"{path}/cursors", json.dumps({"items": [item] * 12_000}).encode(), status=422
    )
    yield Large(
        "redrive with long conditions",
        "POST",
        f"{path}/dead-letters/redrive",
        json.dumps({"reason": "x" * 250_000}).encode(),
    )
    yield Large(
        "redrive of an event type with a long name",
        "POST",
        f"{path}/dead-letters/redrive",
        json.dumps({"event_type": "x.y" * 80_000}).encode(),
        status=422,
    )
    of_failing = f"/subscriptions/{world.failing}/dead-letters"
    yield Large("dead letters", "GET", f"{of_failing}?limit=1000&show_redriven=true")
    yield Large("preview a redrive", "POST", f"{of_failing}/redrive/preview", b"{}")
    yield Large("redrive", "POST", f"{of_failing}/redrive", b"{}")
    yield Large("the statistics of a subscription", "GET", f"{path}/stats?show_time_lag=true")


def lists(world: World) -> Iterator[Large]:
    """Queries at their largest."""
    yield Large("all event types", "GET", "/event-types")
    yield Large("a page of event types", "GET", "/event-types?limit=1000")
    yield Large("event types of an application", "GET", "/event-types?owning_application=shop")
    yield Large("event types as they were", "GET", f"/event-types?as_of={world.position}")
    yield Large("event types by a long text", "GET", f"/event-types?q={'x' * 3_000}")
    yield Large("facets", "GET", "/event-type-facets")
    yield Large("unused event types", "GET", "/event-types?unused_for_days=1")
    yield Large("schemas", "GET", f"/event-types/{LARGE}/schemas?limit=1000")
    yield Large("subscriptions", "GET", "/subscriptions?limit=1000")
    yield Large("subscriptions with their status", "GET", "/subscriptions?limit=1000&show_status=true")
    names = urlencode([("event_type", "x")] * 200)
    yield Large("subscriptions to many event types", "GET", f"/subscriptions?{names}")
    yield Large("the audit trail", "GET", "/audit?limit=1000")
    yield Large("the audit trail with states", "GET", "/audit?limit=1000&states=true")
    yield Large("denials", "GET", "/audit/denials?limit=1000")
    yield Large("a tile of hashes", "GET", "/log/tile/0/000")
    yield Large("a tile of entries", "GET", "/log/tile/entries/000")
    yield Large("metrics", "GET", "/metrics")
    yield Large("the history of metrics", "GET", "/metrics/history?limit=1000")
    yield Large("the description of the API", "GET", "/openapi.json")
    yield Large("the documentation", "GET", "/docs")
    yield Large(
        "a compressed list", "GET", f"/event-types/{LARGE}/schemas?limit=1000", None, {"Accept-Encoding": "gzip"}
    )
    cookies = "; ".join(f"c{number}=x" for number in range(2_000))
    yield Large("many cookies", "GET", "/console/settings", None, {"Cookie": cookies[:16_000]})
    yield Large("many tags", "GET", "/event-types?limit=1", None, {"If-None-Match": ",".join(['"x"'] * 4_000)})
    yield Large("a long Accept", "GET", "/event-types?limit=1", None, {"Accept": ",".join(["a/b;q=0.1"] * 1_600)}, 406)
    yield Large(
        "many headers", "GET", "/event-types?limit=1", None, {f"X-{number}": "x" * 1_200 for number in range(40)}
    )
    yield Large("many parameters", "GET", "/event-types?" + "&".join(f"a{n}=1" for n in range(500)) + "&limit=1")


def streams(world: World) -> Iterator[Large]:
    """Events as they are read."""
    begin = json.dumps([{"partition": str(number), "offset": "BEGIN"} for number in range(1)])
    end = "batch_limit=50&stream_limit=50&stream_timeout=5&batch_flush_timeout=1"
    path = f"/event-types/{ANYTHING}/events?{end}"
    yield Large("a stream of large events", "GET", path, None, {"X-Nakadi-Cursors": begin})
    yield Large("the same in gzip", "GET", path, None, {"X-Nakadi-Cursors": begin, "Accept-Encoding": "gzip"})
    yield Large(
        "the same as server-sent events", "GET", path, None, {"X-Nakadi-Cursors": begin, "Accept": "text/event-stream"}
    )
    wanted = quote("event.text == 'x' || event.number > 10")
    yield Large("the same with a filter", "GET", f"{path}&filter={wanted}", None, {"X-Nakadi-Cursors": begin})
    tiny = f"/event-types/{DRAFTS}/events?batch_limit=100000&stream_limit=100000&stream_timeout=5&batch_flush_timeout=1"
    yield Large("a stream of tiny events", "GET", tiny, None, {"X-Nakadi-Cursors": begin})
    many = json.dumps([{"partition": "0", "offset": "BEGIN"}] * 280)
    yield Large("a stream from many cursors", "GET", path, None, {"X-Nakadi-Cursors": many}, 412)
    yield Large(
        "a stream of a subscription",
        "GET",
        f"/subscriptions/{world.subscription}/events?{end}&max_uncommitted_events=1000&commit_timeout=1",
    )


def console(world: World) -> Iterator[Large]:
    """Pages, and their forms."""
    at = f"/console/event-types/{ANYTHING}/events"
    yield Large("page: large events", "GET", f"{at}?start=oldest")
    yield Large("page: large events as JSON", "GET", f"{at}?start=oldest&format=json")
    yield Large("page: the newest events", "GET", at)
    yield Large(
        "page: events with a filter", "GET", f"{at}?start=oldest&filter={quote(FILTERS['of many comparisons'])}"
    )
    yield Large("page: tiny events", "GET", f"/console/event-types/{DRAFTS}/events?start=oldest")
    of_large = f"/console/event-types/{LARGE}"
    yield Large("page: compared schemas", "GET", f"{of_large}?tab=schema&version=2.0.0&against=1.0.0")
    yield Large("page: a long schema", "GET", f"{of_large}?tab=schema")
    yield Large("page: edit a large definition", "GET", f"{of_large}?tab=edit")
    for name in ("", "/event-types", "/subscriptions", "/audit", "/settings", "/storages", "/jobs", "/login"):
        yield Large(f"page: {name or 'overview'}", "GET", f"/console{name}")
    yield Large("page: event types by a long text", "GET", f"/console/event-types?q={'x' * 3_000}")
    yield Large("page: a subscription", "GET", f"/console/subscriptions/{world.subscription}")
    yield Large("page: dead letters", "GET", f"/console/subscriptions/{world.failing}?tab=dead-letters&preview=yes")
    yield Large("page: an entry", "GET", f"/console/audit/{world.position}", status=200)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": world.cookie}

    def sent(**members: str) -> bytes:
        return urlencode({"csrf": world.csrf, **members}).encode()

    text = json.dumps(event_type_body(name=LARGE, schema=_schema(_lines("d"))), indent=1)
    yield Large("page: plan another schema", "POST", f"{of_large}?tab=edit", sent(action="plan", definition=text), form)
    text = json.dumps(event_type_body(name=LARGE, schema=_schema({"description": "%\u20ac" * 60_000})))
    yield Large("page: plan a long schema", "POST", f"{of_large}?tab=edit", sent(action="plan", definition=text), form)
    yield Large(
        "page: plan what is no JSON",
        "POST",
        f"{of_large}?tab=edit",
        sent(action="plan", definition="\u20ac" * 270_000),
        form,
    )
    for kind, event in (("values", {"a": [0] * 300_000}), ("members", {str(n): n for n in range(45_000)})):
        text = sent(action="publish", event=json.dumps(event))
        yield Large(f"page: publish many {kind}", "POST", f"/console/event-types/{DRAFTS}/events", text, form, 303)
    text = json.dumps({"a": "%&<" * 800_000})[:2_000_000]
    yield Large(
        "page: publish what is too large",
        "POST",
        f"/console/event-types/{DRAFTS}/events",
        sent(action="publish", event=text[:700_000]),
        form,
        422,
    )
    yield Large("page: a long token", "POST", "/console/login", sent(token="x" * 60_000), form, 422)
    yield Large("page: a form of others", "POST", "/console/settings", b"csrf=" + b"x" * 2_400_000, form, 403)


def requests(world: World) -> Iterator[Large]:
    """All of them."""
    parts: Sequence[Iterator[Large]] = (
        definitions(),
        other_definitions(),
        evaluations(),
        batches(),
        cursors(),
        of_subscription(world),
        lists(world),
        streams(world),
        console(world),
    )
    for part in parts:
        yield from part


def answer(client: httpx.Client, request: Large) -> tuple[int, int, bytes]:
    """Make a request; its status, how many bytes came, and the first of them."""
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **request.headers}
    with client.stream(request.method, request.path, content=request.body, headers=headers) as response:
        size, first = 0, b""
        for piece in response.iter_raw():
            size += len(piece)
            first = first or piece[:300]
            if size > READ_BYTES_MAX:
                break
    return response.status_code, size, first
