"""Events that only some readers of the event type may see.

Source: reference publishing#event-owners, publishing#consumer-tag.
"""

import uuid

import pytest

from tests.acceptance.conftest import event
from tests.support.builders import SCHEMA, event_type_body
from tests.support.server import open_stream, running_server
from tests.support.tokens import ADMINISTRATOR, bearer, write_tokens


BEGIN = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
TOKENS = {name: {"uid": name, "realm": "/services"} for name in ("stups_nakadi", "acme", "other")}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A client of a server that requires tokens, with event owners enabled."""
    folder = tmp_path_factory.mktemp("guarded")
    write_tokens(folder / "tokens.toml", TOKENS)
    environment = {"RIONI_AUTH_MODE": "basic", **ADMINISTRATOR, "RIONI_AUTH_TOKENS": str(folder / "tokens.toml")}
    with (
        running_server(folder / "data", "--workers", "1", environment=environment) as server,
        server.client() as client,
    ):
        feature = {"feature": "event_owner_selector_authz", "enabled": True}
        assert client.post("/settings/features", json=feature, headers=bearer("stups_nakadi")).status_code == 204
        yield client


def orders(client, path, count, **headers):
    """The order ids of the first events of a stream."""
    with open_stream(client, f"{path}batch_limit=1&stream_limit={count}", headers=headers) as stream:
        return [each["order_id"] for each in stream.events(count)]


@pytest.mark.parametrize("selector", ["order_id", "metadata.published_by"])
def test_only_its_owner_writes_and_reads_an_event(guarded, name, selector):
    owner = {"type": "path", "name": "service", "value": selector}
    body = event_type_body(name=name, event_owner_selector=owner)
    assert guarded.post("/event-types", json=body, headers=bearer("acme")).status_code == 201
    path = f"/event-types/{name}/events"
    for token in ("acme", "other"):
        assert guarded.post(path, json=[event(token)], headers=bearer(token)).status_code == 200
        assert orders(guarded, f"{path}?", 1, **BEGIN, **bearer(token)) == [token]
    assert orders(guarded, f"{path}?", 2, **BEGIN, **bearer("stups_nakadi")) == ["acme", "other"]


def test_only_the_owner_may_publish_its_events(guarded, name):
    owner = {"type": "path", "name": "service", "value": "order_id"}
    guarded.post("/event-types", json=event_type_body(name=name, event_owner_selector=owner), headers=bearer("acme"))
    events = [event("other"), event("acme"), event("other")]
    response = guarded.post(f"/event-types/{name}/events", json=events, headers=bearer("other"))
    assert response.status_code == 422
    assert [(item["publishing_status"], item["step"], item["detail"]) for item in response.json()] == [
        ("aborted", "validating", ""),
        ("failed", "validating", f"Access on WRITE event:{events[1]['metadata']['eid']} denied"),
        ("aborted", "none", ""),
    ]
    assert guarded.post(f"/event-types/{name}/events", json=events, headers=bearer("stups_nakadi")).status_code == 200


def test_a_static_owner_owns_all_events(guarded, name):
    owner = {"type": "static", "name": "service", "value": "acme"}
    guarded.post("/event-types", json=event_type_body(name=name, event_owner_selector=owner), headers=bearer("acme"))
    path = f"/event-types/{name}/events"
    assert guarded.post(path, json=[event("1")], headers=bearer("other")).status_code == 422
    assert guarded.post(path, json=[event("2")], headers=bearer("acme")).status_code == 200
    assert orders(guarded, f"{path}?", 1, **BEGIN, **bearer("acme")) == ["2"]


def test_an_event_without_an_owner_is_for_all_readers(guarded, name):
    owner = {"type": "path", "name": "service", "value": "brand"}
    schema = SCHEMA.replace('"order_id":{"type":"string"}', '"order_id":{"type":"string"},"brand":{}')
    body = event_type_body(name=name, event_owner_selector=owner, schema={"type": "json_schema", "schema": schema})
    guarded.post("/event-types", json=body, headers=bearer("acme"))
    path = f"/event-types/{name}/events"
    events = [event("1"), event("2", brand=None), event("3", brand="acme"), event("4")]
    assert guarded.post(path, json=events, headers=bearer("acme")).status_code == 200
    assert orders(guarded, f"{path}?", 3, **BEGIN, **bearer("other")) == ["1", "2", "4"]


def test_tagged_events_reach_their_subscription_only(client, create, subscribe, name):
    create(name)
    chosen, left_out = subscribe(name, read_from="begin"), subscribe(name, read_from="begin")
    path = f"/event-types/{name}/events"
    for order_id, subscription_id in (("1", None), ("2", chosen), ("3", str(uuid.uuid4())), ("4", None)):
        headers = {"X-CONSUMER-TAG": f"consumer_subscription_id={subscription_id}"} if subscription_id else {}
        assert client.post(path, json=[event(order_id)], headers=headers).status_code == 200
    assert orders(client, f"{path}?", 2, **BEGIN) == ["1", "4"]
    assert orders(client, f"/subscriptions/{chosen}/events?", 3) == ["1", "2", "4"]
    assert orders(client, f"/subscriptions/{left_out}/events?", 2) == ["1", "4"]
