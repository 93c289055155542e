"""Every way to change something, and every way to publish, is charged to the quotas of the client.

Source: reference common#quotas.
"""

import contextlib
import itertools
import uuid

import httpx
import pytest

import rioni.client
from tests.acceptance.conftest import ATTRIBUTE, event
from tests.support.builders import event_type_body
from tests.support.routes import routed
from tests.support.server import count_events, running_server


CHARGED = {
    "POST /event-types",
    "PUT /event-types/{name}",
    "DELETE /event-types/{name}",
    "POST /event-types/{name}/schemas",
    "POST /event-types/{name}/timelines",
    "POST /event-types/{name}/partition-count",
    "PUT /event-types/{name}/partition-count",
    "POST /subscriptions",
    "PUT /subscriptions/{subscription_id}",
    "DELETE /subscriptions/{subscription_id}",
    "PATCH /subscriptions/{subscription_id}/cursors",
    "POST /subscriptions/{subscription_id}/dead-letters/redrive",
    "POST /settings/admins",
    "PUT /settings/blacklist/{blacklist_type}/{name}",
    "DELETE /settings/blacklist/{blacklist_type}/{name}",
    "POST /settings/features",
    "POST /storages",
    "DELETE /storages/{storage_id}",
    "PUT /storages/default/{storage_id}",
}
"""Operations that append to the internal log."""

FREE = {
    # Charged for events, not as changes.
    "POST /event-types/{name}/events",
    "POST /event-types/{name}/deleted-events",
    # These change nothing.
    "POST /event-types/{name}/cursor-distances",
    "POST /event-types/{name}/cursors-lag",
    "POST /event-types/{name}/shifted-cursors",
    "POST /event-types/{name}/schemas/{version}/compatibility-check",
    "POST /filter-evaluations",
    "POST /subscriptions/{subscription_id}/dead-letters/redrive/preview",
    # Consuming.
    "POST /subscriptions/{subscription_id}/events",
    "POST /subscriptions/{subscription_id}/cursors",
    "DELETE /subscriptions/{subscription_id}/streams/{stream_id}",
    "POST /subscriptions/{subscription_id}/streams/{stream_id}/failures",
    "POST /stream-tickets",
    # Requests of witnesses and tools; neither is kept forever.
    "POST /log/cosignatures",
    "PUT /jobs/{job_id}",
}


def test_every_request_but_reads_is_charged_or_says_why_not():
    assert {route for route in routed() if not route.startswith(("GET ", "HEAD ", "OPTIONS "))} == CHARGED | FREE


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A broker that lets each client make one change a minute, and publish ten events a second."""
    settings = {"RIONI_QUOTA_CHANGES_PER_MINUTE": "1", "RIONI_QUOTA_EVENTS_PER_SECOND": "10"}
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "2", environment=settings) as running:
        yield running


_addresses = itertools.count(1)


@contextlib.contextmanager
def another(server):
    """A client that the broker has not seen: all of 127.0.0.0/8 is this machine."""
    high, low = divmod(next(_addresses), 250)
    with server.client(transport=httpx.HTTPTransport(local_address=f"127.9.{high}.{low + 1}")) as client:
        yield client


@pytest.fixture
def event_type(server, name):
    with another(server) as client:
        assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
    return name


BODIES = {
    "POST /event-types": event_type_body(name="test.quota"),
    "PUT /event-types/{name}": event_type_body(name="test.quota"),
    "POST /event-types/{name}/schemas": {"type": "json_schema", "schema": "{}"},
    "POST /event-types/{name}/timelines": {"storage_id": "none"},
    "POST /event-types/{name}/partition-count": {"partition_count": 2},
    "PUT /event-types/{name}/partition-count": {"partition_count": 2},
    "POST /subscriptions": {"owning_application": "shop", "event_types": ["test.none"]},
    "PUT /subscriptions/{subscription_id}": {"owning_application": "shop", "event_types": ["test.none"]},
    "PATCH /subscriptions/{subscription_id}/cursors": {
        "items": [{"event_type": "test.none", "partition": "0", "offset": "BEGIN"}]
    },
    "POST /subscriptions/{subscription_id}/dead-letters/redrive": {},
    "POST /settings/admins": {role: [ATTRIBUTE] for role in ("reader", "writer", "admin")},
    "POST /settings/features": {"feature": "none", "enabled": True},
    "POST /storages": {"id": "other", "storage_type": "none"},
}


def sent(client, route):
    method, path = route.split()
    values = {"name": "test.quota", "subscription_id": str(uuid.uuid4()), "blacklist_type": "CONSUMER_APP"}
    return client.request(method, path.format(**values, storage_id="none"), json=BODIES.get(route))


@pytest.mark.parametrize("route", sorted(CHARGED))
def test_changes_are_charged(server, route):
    with another(server) as client:
        first, second = sent(client, route), sent(client, route)
    assert first.status_code != 429
    assert first.headers["ratelimit-policy"].startswith('"changes";q=1;w=60, "change-bytes";q=120000000;w=60')
    assert first.headers["ratelimit"].startswith('"changes";r=0;t=60')
    assert second.status_code == 429
    assert 1 <= int(second.headers["retry-after"]) <= 60
    problem = second.json()
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert problem["violated-policies"] == ["changes"]
    assert "quota_changes_per_minute" in problem["detail"]


def batch(count):
    return [event() for _ in range(count)]


def test_batches_are_charged_as_a_whole_before_they_are_stored(server, event_type):
    path, first = f"/event-types/{event_type}/events", batch(1_000)
    with another(server) as client:
        keyed = {"Idempotency-Key": "first"}
        # More than a second's worth: it is admitted, and the client has to wait for a hundred seconds.
        assert client.post(path, json=first, headers=keyed).status_code == 200
        refused = client.post(path, json=batch(2))
        assert refused.status_code == 429
        assert refused.json()["violated-policies"] == ["events"]
        assert refused.headers["ratelimit-policy"] == '"events";q=10;w=1;qu="events"'
        assert int(refused.headers["retry-after"]) > 10
        # A batch that is already stored costs nothing.
        assert client.post(path, json=first, headers=keyed).status_code == 200
        assert count_events(client, event_type) == 1_000
    with another(server) as client:
        assert client.post(path, json=batch(2)).status_code == 200
        assert count_events(client, event_type) == 1_002
    assert server.metric('rioni_quota_refusals_total{quota="events"}') >= 1


def test_deletions_are_charged_as_events(server, name):
    keys = {"partition_strategy": "hash", "partition_key_fields": ["order_id"]}
    compacted = event_type_body(name=name, cleanup_policy="compact", **keys)
    with another(server) as client:
        client.post("/event-types", json=compacted).raise_for_status()
    deletions = [event(metadata={"partition_compaction_key": f"{number}"}) for number in range(1_000)]
    with another(server) as client:
        answers = [client.post(f"/event-types/{name}/deleted-events", json=deletions) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


def test_the_client_waits_as_long_as_it_is_asked_to(server, event_type):
    with rioni.client.Client(server.url) as client:
        for _ in range(3):
            client.publish(event_type, batch(15))
    with another(server) as client:
        assert count_events(client, event_type) == 45
