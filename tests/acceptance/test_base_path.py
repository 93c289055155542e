"""Every kind of client below the path of a reverse proxy, whether the proxy removes the path or leaves it there.

Source: reference common#base-path, streams#tickets.
"""

import asyncio
import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from rioni.client import AsyncClient, Client, EventType, Schema, Subscription
from rioni.spark import register
from tests.support.browser import needs_browser
from tests.support.commands import run_command
from tests.support.lake import create_orders, publish_orders
from tests.support.prefix_proxy import prefix_proxy
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens
from tests.support.waiting import WAIT_S


PREFIX, TOKEN = "/tools/broker", "a-token"
NUMBERS = itertools.count()
EVENTS = [{"number": number} for number in range(3)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker below a path, which asks for tokens."""
    folder = tmp_path_factory.mktemp("base-path")
    user = {"uid": "stups_nakadi", "realm": "services", "scopes": list(FULL_SCOPES)}
    write_tokens(folder / "tokens.toml", {TOKEN: user})
    environment = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_AUTH_SERVICE_REALMS": "services",
        "RIONI_BASE_PATH": PREFIX,
    }
    with running_server(folder / "data", "--workers", "2", environment=environment) as running:
        yield running


@pytest.fixture(params=["the printed address", "removed", "left"])
def url(request, broker):
    """Yield the URL at which clients find the broker; requests for anything outside of it fail the test."""
    if request.param == "the printed address":
        yield broker.url
        return
    strips = request.param == "removed"
    with prefix_proxy(urlsplit(broker.url).port, PREFIX, strips=strips, says=False) as proxy:
        yield proxy.broker_url
        assert not proxy.strayed


@pytest.fixture
def name():
    return f"base-path.event-{next(NUMBERS)}"


def definition(name):
    return EventType(name=name, owning_application="shop", schema=Schema.json({}))


def wanted(name):
    return Subscription(owning_application="shop", event_types=[name], read_from="begin")


def test_a_client_for_threads(url, name):
    with Client(url, token=TOKEN) as client:
        client.event_types.create(definition(name))
        client.publish(name, EVENTS)
        with client.subscription(wanted(name)) as events:
            assert [each.data["number"] for each in itertools.islice(events, 3)] == [0, 1, 2]
        assert [each.resource for each in client.audit.entries(resource=f"event-type:{name}")] == [f"event-type:{name}"]


def test_a_client_for_asyncio(url, name):
    async def use():
        async with AsyncClient(url, token=TOKEN) as client:
            await client.event_types.create(definition(name))
            await client.publish(name, EVENTS)
            async with client.subscription(wanted(name)) as events:
                coming = aiter(events)
                return [(await anext(coming)).data["number"] for _ in EVENTS]

    # The driver of the browser has an event loop in the thread of the tests.
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(asyncio.run, use()).result() == [0, 1, 2]


def test_commands(url, name, monkeypatch, capsys, tmp_path):
    for variable in [each for each in os.environ if each.startswith("RIONI_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIONI_CONTEXTS", str(tmp_path / "contexts.toml"))
    monkeypatch.setenv("RIONI_TOKEN", TOKEN)

    def run(*words, stdin=None):
        code, said, failed = run_command(monkeypatch, capsys, "--url", url, *words, stdin=stdin)
        assert code == 0, failed
        return said

    with Client(url, token=TOKEN) as client:
        client.event_types.create(definition(name))
    run("publish", name, stdin="\n".join(map(json.dumps, EVENTS)))
    assert len(run("tail", name, "--no-follow").splitlines()) == len(EVENTS)
    assert name in run("event-types", "list", "--name", name)
    assert name in run("audit", "list", "--resource", f"event-type:{name}")
    options = ("--event-type", name, "--to", str(tmp_path / "archive"), "--once")
    run("archive", "--token", TOKEN, *options)
    assert [*(tmp_path / "archive").rglob("*.parquet")]


def test_server_sent_events_with_a_ticket(url, name):
    """A page asks for the path as it sees it, or as the API names it."""
    with Client(url, token=TOKEN) as client:
        client.event_types.create(definition(name))
        client.publish(name, EVENTS)
    path = f"/event-types/{name}/events"
    for asked in (path, PREFIX + path):
        given = httpx.post(f"{url}/stream-tickets", json={"path": asked}, headers=bearer(TOKEN), timeout=WAIT_S)
        assert given.status_code == 201, given.text
        assert given.json()["path"] == PREFIX + path
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc}{given.json()['path']}"
        query = {
            "ticket": given.json()["ticket"],
            "cursors": json.dumps([{"partition": "0", "offset": "BEGIN"}]),
            "stream_limit": len(EVENTS),
        }
        answer = httpx.get(address, params=query, headers={"Accept": "text/event-stream"}, timeout=WAIT_S)
        assert answer.status_code == 200, answer.text
        batches = [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]
        found = [event["number"] for batch in batches for event in batch.get("events", [])]
        assert found == [0, 1, 2]
    for other in (f"/other{path}", f"{PREFIX}x{path}", f"{PREFIX}{PREFIX}{path}"):
        refused = httpx.post(f"{url}/stream-tickets", json={"path": other}, headers=bearer(TOKEN), timeout=WAIT_S)
        assert refused.status_code == 422


@needs_browser
def test_an_event_source_of_a_page_beside_the_broker(browser, url, name):
    with Client(url, token=TOKEN) as client:
        client.event_types.create(definition(name))
        client.publish(name, EVENTS)
    path = f"{PREFIX}/event-types/{name}/events"
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/docs")
    page.route("**/page", lambda route: route.fulfill(body="<title>page</title>", content_type="text/html"))
    page.goto(f"{url}/page")
    found = page.evaluate(
        """async ([path, ticketPath, token]) => {
          const answer = await fetch(ticketPath, {
            method: "POST",
            headers: {"Content-Type": "application/json", "Authorization": `Bearer ${token}`},
            body: JSON.stringify({path}),
          });
          const {ticket, path: given} = await answer.json();
          const begin = JSON.stringify([{partition: "0", offset: "BEGIN"}]);
          const source = new EventSource(`${given}?${new URLSearchParams({ticket, cursors: begin})}`);
          const found = [];
          await new Promise((resolve, reject) => {
            source.onmessage = event => {
              found.push(...(JSON.parse(event.data).events ?? []).map(each => each.number));
              if (found.length >= 3) resolve();
            };
            source.onerror = () => reject(new Error("the stream failed"));
          });
          source.close();
          return found;
        }""",
        [path, f"{PREFIX}/stream-tickets", TOKEN],
    )
    assert found == [0, 1, 2]
    context.close()


@pytest.mark.spark
def test_spark(url, broker, spark):
    register(spark)
    with httpx.Client(base_url=url, headers=bearer(TOKEN), timeout=WAIT_S) as api:
        name = create_orders(api)
        publish_orders(api, name, *({"order": str(number), "amount": number} for number in range(9)))
    options = {"url": url, "event_type": name, "token": TOKEN}
    assert spark.read.format("rioni").options(**options).load().count() == 9
