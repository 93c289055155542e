"""Streams as browsers read them: broken connections, other clients, refusals that pass.

Source: the HTML standard, chapter server-sent events; reference streams#reconnecting, streams#passing-refusals.
"""

import contextlib
import json

import pytest

from tests.acceptance.conftest import event, partitions, publish_orders
from tests.support.browser import PATIENCE_MS, needs_browser
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.tcp_proxy import TcpProxy
from tests.support.tokens import ADMINISTRATOR, bearer, write_tokens
from tests.support.waiting import WAIT_S, Deadline


EVENTS = {"Accept": "text/event-stream"}
LONG = "batch_flush_timeout=1&commit_timeout=60&stream_timeout=600"


class Source:
    """An open stream of server-sent events, read block by block, as a browser would."""

    def __init__(self, response):
        self._lines = response.iter_lines()
        self.last_id = ""

    def block(self):
        """The fields of the next block; data that has several lines is joined; empty at the end."""
        deadline, fields = Deadline("the next block of events"), {}
        for line in self._lines:
            deadline.check(lambda: fields)
            if not line:
                if fields:
                    return fields
                continue
            name, _, value = line.partition(": ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            if name == "id":
                self.last_id = value
        return {}

    def events(self, count):
        """The events of the next batches, at least `count`."""
        deadline = Deadline(f"{count} events")
        found: list = []
        while len(found) < count:
            deadline.check(found.copy)
            if not (fields := self.block()):
                deadline.fail("the stream has ended before them", found)
            if "data" in fields and "event" not in fields:
                found += json.loads(fields["data"]).get("events", [])
        return found


@contextlib.contextmanager
def opened(client, path, last_id="", **headers):
    resumed = {"Last-Event-ID": last_id} if last_id else {}
    with client.stream("GET", path, headers=EVENTS | resumed | headers, timeout=WAIT_S) as response:
        assert response.status_code == 200, response.read()
        yield Source(response)


def order_ids(events):
    return [each["order_id"] for each in events]


@pytest.mark.parametrize("count", [1, 3])
def test_a_browser_that_reconnects_takes_its_session_over_at_once(client, server, create, name, subscribe, count):
    create(name, **partitions(count))
    publish_orders(client, name, *map(str, range(10)))
    path = f"/subscriptions/{subscribe(name, read_from='begin')}"
    with server.client() as other, contextlib.ExitStack() as streams:
        # There are as many streams as partitions: no slot is free.
        former = [streams.enter_context(opened(client, f"{path}/events?{LONG}")) for _ in range(count)]
        former[0].events(1)
        last_id = former[0].last_id
        streams.enter_context(opened(other, f"{path}/events?{LONG}", last_id))
        # Nobody else waits for a commit timeout, and the former stream says why it ends.
        blocks = [*iter(former[0].block, {})]
        assert "Session ended" in blocks[-1]["data"]
        committed = {each["partition"]: each["offset"] for each in client.get(f"{path}/cursors").json()["items"]}
        seen = {each["partition"]: each["offset"] for each in json.loads(last_id) if "offset" in each}
        assert seen
        assert {partition: committed[partition] for partition in seen} == seen


def test_an_id_comes_before_any_event_so_that_a_gap_loses_nothing(client, create, name, subscribe):
    create(name, **partitions(2))
    low_level = f"/event-types/{name}/events"
    by_subscription = f"/subscriptions/{subscribe(name)}/events"
    for path in (low_level, by_subscription):
        with opened(client, f"{path}?{LONG}") as source:
            first = source.block()
        assert first["retry"] == "1000"
        publish_orders(client, name, "1", "2")
        with opened(client, f"{path}?{LONG}", first["id"]) as source:
            assert sorted(order_ids(source.events(2))) == ["1", "2"]


def test_an_event_that_was_sent_over_several_lines_is_one(client, create, name):
    create(name)
    body = json.dumps([event("1", note="a\r\nb\u2028c\ufeff")], indent=4).replace("\n", "\r\n")
    headers = {"Content-Type": "application/json"}
    assert client.post(f"/event-types/{name}/events", content=body, headers=headers).status_code == 200
    begin = '&cursors=[{"partition":"0","offset":"BEGIN"}]'
    with opened(client, f"/event-types/{name}/events?{LONG}{begin}") as source:
        (received,) = source.events(1)
    assert received["note"] == "a\r\nb\u2028c\ufeff"


def test_a_refusal_that_passes_is_an_event_that_tells_when_to_come_again(client, server, create, name, subscribe):
    create(name)
    path = f"/subscriptions/{subscribe(name)}/events?{LONG}"
    with opened(client, path), server.client() as other:
        answer = other.get(path, headers=EVENTS)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        retry, kind, data = answer.text.strip().split("\n")
        assert (retry, kind) == ("retry: 3000", "event: problem")
        assert json.loads(data.removeprefix("data: "))["status"] == 409
        # Clients that read lines learn it from the status.
        assert other.get(path).status_code == 409
    with contextlib.ExitStack() as streams:
        for _ in range(5):
            streams.enter_context(opened(client, f"/event-types/{name}/events?{LONG}"))
        answer = client.get(f"/event-types/{name}/events?{LONG}", headers=EVENTS)
        assert json.loads(answer.text.partition("data: ")[2])["status"] == 429


@pytest.mark.parametrize(
    ("last_id", "status"), [("x", 400), ("[{}]", 400), ('[{"proof":1}]', 400), ('[{"proof":"x","stream_id":[]}]', 400)]
)
def test_what_never_passes_keeps_its_status(client, create, name, subscribe, last_id, status):
    create(name)
    path = f"/subscriptions/{subscribe(name)}/events"
    assert client.get(path, headers=EVENTS | {"Last-Event-ID": last_id}).status_code == status
    assert client.get("/subscriptions/unknown/events", headers=EVENTS).status_code == 404
    assert client.get("/event-types/unknown/events", headers=EVENTS).status_code == 404


@pytest.fixture(scope="module")
def with_tokens(tmp_path_factory):
    """A server with two workers that asks for tokens, and a subscription that both users may read."""
    folder = tmp_path_factory.mktemp("tokens")
    write_tokens(folder / "tokens.toml", {each: {"uid": each, "scopes": ["uid"]} for each in ("alice", "bob")})
    environment = {"RIONI_AUTH_MODE": "basic", "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"), **ADMINISTRATOR}
    with running_server(folder / "data", "--workers", "2", environment=environment) as running:
        yield running


def test_only_the_client_that_was_sent_an_id_takes_the_session_over(with_tokens, name):
    with contextlib.ExitStack() as stack:
        alice, again, bob = (
            stack.enter_context(with_tokens.client(headers=bearer(each))) for each in ("alice", "alice", "bob")
        )
        assert alice.post("/event-types", json=event_type_body(name=name)).status_code == 201
        body = {"owning_application": "shop", "event_types": [name]}
        path = f"/subscriptions/{alice.post('/subscriptions', json=body).json()['id']}"
        source = stack.enter_context(opened(alice, f"{path}/events?{LONG}"))
        source.block()
        (stats,) = bob.get(f"{path}/stats").json()["items"]
        stream_id = stats["partitions"][0]["stream_id"]
        # Another reader knows the id of the stream, and may even have seen the whole id of an event.
        for last_id in (source.last_id, json.dumps([{"stream_id": stream_id, "proof": "x"}])):
            refused = bob.get(f"{path}/events?{LONG}", headers=EVENTS | {"Last-Event-ID": last_id})
            assert json.loads(refused.text.partition("data: ")[2])["status"] == 409
        assert bob.get(f"{path}/stats").json()["items"][0]["partitions"][0]["stream_id"] == stream_id
        with opened(again, f"{path}/events?{LONG}", source.last_id) as taken:
            assert json.loads(taken.block()["data"])["stream_id"] != stream_id


# Remembers what a source gets and tells; `committing` commits each batch with the values from the stream.
SOURCE = r"""([address, committing]) => {
  const source = new EventSource(address);
  Object.assign(window, {source, seen: [], breaks: 0, opens: 0, streamId: null, gaveUp: false});
  source.addEventListener("stream", message => { streamId = JSON.parse(message.data).stream_id; });
  source.onopen = () => { opens += 1; };
  source.onerror = () => {
    breaks += 1;
    gaveUp = gaveUp || source.readyState === EventSource.CLOSED;
  };
  source.onmessage = message => {
    const batch = JSON.parse(message.data);
    if (!batch.events) return;
    seen.push(...batch.events.map(event => event.order_id));
    if (committing) fetch(address.replace(/\/events.*/, "/cursors"), {
      method: "POST",
      headers: {"Content-Type": "application/json", "X-Nakadi-StreamId": streamId},
      body: JSON.stringify({items: [batch.cursor]}),
    }).catch(() => {});
  };
}"""


@pytest.fixture
def proxied(server):
    """A way to the server that breaks."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with contextlib.closing(TcpProxy((host, int(port)))) as proxy:
        yield proxy


def wait_for(page, condition):
    page.wait_for_function(condition, timeout=PATIENCE_MS)


@needs_browser
@pytest.mark.parametrize("committing", [True, False], ids=["commits", "never commits"])
@pytest.mark.parametrize("kind", ["subscription", "low-level"])
def test_a_browser_gets_every_event_in_order_over_broken_connections(
    client, create, name, subscribe, browser, proxied, kind, committing
):
    create(name)
    path = f"/event-types/{name}" if kind == "low-level" else f"/subscriptions/{subscribe(name)}"
    page = browser.new_page()
    page.goto(f"http://{proxied.address}/health")
    page.evaluate(SOURCE, [f"{path}/events?{LONG}", committing and kind == "subscription"])
    wait_for(page, "opens == 1")
    # Something is published in each gap, also in the one before the first event.
    for number in range(1, 4):
        proxied.cut()
        proxied.break_off()
        wait_for(page, f"breaks >= {number}")
        publish_orders(client, name, f"{number}a")
        proxied.heal()
        wait_for(page, f"seen.includes('{number}a')")
        publish_orders(client, name, f"{number}b")
        wait_for(page, f"seen.includes('{number}b')")
    seen, gave_up = page.evaluate("[seen, gaveUp]")
    page.close()
    assert not gave_up
    # At least once: what comes again was not committed, or not acknowledged, and comes in order too.
    expected = [f"{number}{each}" for number in range(1, 4) for each in "ab"]
    assert list(dict.fromkeys(seen)) == expected


@needs_browser
def test_a_browser_waits_for_a_slot_and_never_gives_up(client, server, create, name, subscribe, browser):
    create(name)
    publish_orders(client, name, "1")
    path = f"/subscriptions/{subscribe(name, read_from='begin')}"
    page = browser.new_page()
    page.goto(f"{server.url}/health")
    # Uncommitted events keep its slot for the commit timeout.
    with opened(client, f"{path}/events?batch_flush_timeout=1&commit_timeout=10") as other:
        other.events(1)
        page.evaluate(SOURCE, [f"{path}/events?{LONG}", True])
        wait_for(page, "breaks >= 1")
    wait_for(page, "seen.length == 1")
    assert not page.evaluate("gaveUp")
    page.close()


@needs_browser
def test_a_page_of_another_origin_reads_and_reconnects_where_that_is_allowed(tmp_path, browser, name):
    with running_server(tmp_path / "pages") as pages:
        environment = {"RIONI_ALLOWED_ORIGINS": pages.url}
        with running_server(tmp_path / "data", environment=environment) as running, running.client() as client:
            assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
            host, _, port = running.url.removeprefix("http://").rpartition(":")
            with contextlib.closing(TcpProxy((host, int(port)))) as proxy:
                page = browser.new_page()
                page.goto(f"{pages.url}/health")
                page.evaluate(SOURCE, [f"http://{proxy.address}/event-types/{name}/events?{LONG}", False])
                wait_for(page, "opens == 1")
                proxy.break_off()
                publish_orders(client, name, "1")
                wait_for(page, "seen.length == 1")
                assert not page.evaluate("gaveUp")
                page.close()
