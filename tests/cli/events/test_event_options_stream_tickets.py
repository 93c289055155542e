"""`rioni event-types ticket` and `rioni subscriptions ticket`: an address that a client without a token opens once."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import httpx
import pytest

from rioni.client import Client, EventType, Schema, Subscription
from tests.support.prefix_proxy import prefix_proxy
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, write_tokens
from tests.support.waiting import WAIT_S


TOKEN, PREFIX = "a-token", "/tools/broker"
LIFETIME_S = 60


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A broker that wants a token, below a base path."""
    folder = tmp_path_factory.mktemp("tickets")
    user = {"uid": "stups_nakadi", "realm": "services", "scopes": list(FULL_SCOPES)}
    write_tokens(folder / "tokens.toml", {TOKEN: user})
    environment = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_AUTH_SERVICE_REALMS": "services",
        "RIONI_BASE_PATH": PREFIX,
    }
    with running_server(folder / "data", "--workers", "1", environment=environment) as running:
        yield running


@pytest.fixture
def subject(closed):
    """An event type with events, and a subscription to it of an application of the same name."""
    name = f"ticket-{uuid.uuid4().hex[:8]}"
    with Client(closed.url, token=TOKEN) as client:
        client.event_types.create(EventType(name=name, owning_application=name, schema=Schema.json({})))
        client.subscriptions.create(Subscription(owning_application=name, event_types=[name], read_from="begin"))
        client.publish(name, [{"number": number} for number in range(3)])
    return name


def streamed(address, **query):
    """The status of the answer to a client that sends no token, and the numbers of the first three events."""
    parameters = httpx.URL(address).params.merge({"batch_limit": "3", **query})
    found = []
    headers = {"Accept": "text/event-stream"}
    with httpx.stream("GET", address, params=parameters, headers=headers, timeout=WAIT_S) as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                found += [event["number"] for event in json.loads(line[5:]).get("events") or ()]
            if len(found) == 3:
                break
    return answer.status_code, found


FROM_BEGIN = {"cursors": json.dumps([{"partition": "0", "offset": "BEGIN"}])}
COMMANDS = {"event-types ticket {}": FROM_BEGIN, "subscriptions ticket {}/default": {}}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("proxy", [None, "removes the path", "leaves the path"])
def test_the_address_opens_one_stream_without_a_token(run, closed, subject, command, proxy):
    words = command.format(subject).split()
    if proxy is None:
        code, out, err = run(*words, "--url", closed.url, "--token", TOKEN)
        assert (code, out.count("\n")) == (0, 1)
        assert "keep it secret" in err
        assert TOKEN not in out + err
        opened = streamed(out.strip(), **COMMANDS[command])
        again = streamed(out.strip())
    else:
        port = urlsplit(closed.url).port
        with prefix_proxy(port, PREFIX, strips=proxy == "removes the path", says=False) as server:
            _, out, _ = run(*words, "--url", server.broker_url, "--token", TOKEN)
            assert out.startswith(f"{server.broker_url}/")
            opened = streamed(out.strip(), **COMMANDS[command])
            again = streamed(out.strip())
            assert not server.strayed
    assert opened == (200, [0, 1, 2])
    assert again[0] == 401


@pytest.mark.parametrize("command", COMMANDS)
def test_json_has_the_address_and_until_when_it_opens_a_stream(run, closed, subject, command):
    before = datetime.now(UTC)
    code, out, _ = run(*command.format(subject).split(), "--url", closed.url, "--token", TOKEN, "--json")
    found = json.loads(out)
    assert (code, set(found)) == (0, {"url", "expires_at"})
    ends = datetime.fromisoformat(found["expires_at"]) - before
    assert timedelta(seconds=LIFETIME_S - 5) < ends < timedelta(seconds=2 * LIFETIME_S)
    assert streamed(found["url"], **COMMANDS[command]) == (200, [0, 1, 2])


def test_without_a_token_there_is_no_ticket(run, closed, subject):
    code, out, err = run("event-types", "ticket", subject, "--url", closed.url)
    assert (code, out) == (2, "")
    assert "set RIONI_TOKEN" in err


def test_what_does_not_exist_has_no_ticket(rioni, client, name):
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    code, out, err = rioni("event-types", "ticket", f"{name}x")
    assert (code, out) == (2, "")
    assert err.endswith(f"Did you mean {name}?\n")
    code, out, err = rioni("subscriptions", "ticket", str(uuid.UUID(int=1)))
    assert (code, out) == (2, "")
    assert "404" in err


def test_a_broker_without_tokens_gives_tickets_too(rioni, client, name):
    client.event_types.create(EventType(name=name, owning_application="shop", schema=Schema.json({})))
    client.publish(name, [{"number": number} for number in range(3)])
    assert streamed(rioni("event-types", "ticket", name)[1].strip(), **FROM_BEGIN) == (200, [0, 1, 2])
