"""`/audit`, and resources as they were (reference audit#audit-entries)."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.conftest import json_schema, problem
from tests.support.builders import event_type_body


def everything(client, **parameters):
    """The entries of all pages, oldest first."""
    items, href = [], None
    while True:
        answer = client.get(href) if href else client.get("/audit", params={"order": "asc", **parameters})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        items += page["items"]
        if "next" not in page["_links"]:
            return items
        href = page["_links"]["next"]["href"]


def changed(client, name):
    """Change an event type twice, then delete it; the entries of that."""
    resource = f"event-type:{name}"
    headers = {"User-Agent": "audit-test/1.0", "X-Flow-Id": f"flow-{name}"}
    assert client.post("/event-types", json=event_type_body(name=name), headers=headers).status_code == 201
    wider = json_schema(properties={"order_id": {"type": "string"}, "note": {"type": "string"}}, required=["order_id"])
    assert client.post(f"/event-types/{name}/schemas", json=wider).status_code == 201
    assert client.delete(f"/event-types/{name}").status_code == 200
    return everything(client, resource=resource)


def test_every_change_is_an_entry_with_its_author_and_a_patch(client, name):
    """Reference audit#audit-entries, audit#audit-filters."""
    created, added, deleted = changed(client, name)
    assert [each["kind"] for each in (created, added, deleted)] == [
        "event-type.created",
        "event-type.schema-added",
        "event-type.deleted",
    ]
    assert created["actor"] == "unauthenticated"
    assert created["address"] == "127.0.0.1"
    assert created["user_agent"] == "audit-test/1.0"
    assert created["flow_id"] == f"flow-{name}"
    assert created["changes"][0]["value"]["name"] == name
    assert {each["path"] for each in added["changes"]} == {
        "/schema/schema",
        "/schema/version",
        "/schema/created_at",
        "/updated_at",
    }
    assert deleted["changes"] == [{"op": "replace", "path": "", "value": None}]
    (entry,) = everything(client, flow_id=f"flow-{name}", kind="event-type", states="true")
    assert entry["before"] is None
    assert entry["after"]["name"] == name
    assert everything(client, actor="no-such-client") == []


def test_pages_and_the_export_have_the_same_entries(client, name):
    """Reference audit#audit-pages, audit#audit-export."""
    changed(client, name)
    entries = everything(client, limit=7)
    positions = [each["position"] for each in entries]
    assert positions == list(range(1, positions[-1] + 1))
    lines = client.get("/audit?order=asc&states=false", headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    exported = [json.loads(line) for line in lines.text.splitlines()]
    assert exported[: len(entries)] == entries
    second = client.get("/audit?limit=2").json()["_links"]["next"]["href"]
    first = client.get(client.get(second).json()["_links"]["prev"]["href"]).json()
    assert first["_links"]["next"]["href"] == second


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        ("limit=0", 400, "'limit' parameter"),
        ("limit=1001", 400, "'limit' parameter"),
        ("order=up", 400, "order: 'up' is neither asc nor desc"),
        ("after=x", 400, "after: 'x' is not an integer"),
        ("after=1&before=2", 400, "exclude each other"),
        ("kind=nope", 400, "kind: 'nope' is neither a topic"),
        ("resource=order.created", 400, "resource: 'order.created' is not written like event-type:order.created"),
        ("resource=nope:x", 400, "resource: 'nope:x'"),
        ("since=yesterday", 400, "since: 'yesterday' is not an RFC 3339 time"),
        ("until=2026-13-01T00:00:00Z", 400, "until: '2026-13-01T00:00:00Z' is not an RFC 3339 time"),
        ("after=-5", 200, ""),
        ("after=999999999999999999&order=asc", 200, ""),
        ("since=2100-01-01T00:00:00Z", 200, ""),
    ],
)
def test_a_query_that_can_not_be_read_is_named(client, query, status, detail):
    """Reference audit#audit-filters, audit#audit-pages."""
    answer = client.get(f"/audit?{query}")
    if status == 200:
        assert answer.status_code == 200
    else:
        problem(answer, status, detail)


def test_an_export_accepts_no_end_and_other_media_types_are_refused(client):
    problem(client.get("/audit?before=3", headers={"Accept": "application/x-ndjson"}), 400, "before is for pages")
    problem(client.get("/audit", headers={"Accept": "text/html"}), 406)


def test_resources_are_shown_as_they_were(client, name, subscribe):
    """Reference audit#past-states."""
    before = client.post("/event-types", json=event_type_body(name=name, owning_application=name)).json()
    subscription = subscribe(name, owning_application=name)
    position = int(client.get("/audit?limit=1").headers["Log-Position"])
    was = {
        path: client.get(path).json()
        for path in (
            f"/event-types/{name}",
            f"/event-types?owning_application={name}",
            f"/event-types/{name}/schemas",
            f"/event-types/{name}/schemas/1.0.0",
            f"/event-types/{name}/timelines",
            f"/subscriptions?owning_application={name}",
            f"/subscriptions/{subscription}",
            "/storages",
            "/storages/default",
            "/settings/admins",
            "/settings/blacklist",
            "/settings/features",
        )
    }
    assert was[f"/event-types/{name}"] == before
    wider = json_schema(properties={"order_id": {"type": "string"}, "note": {"type": "string"}}, required=["order_id"])
    assert client.post(f"/event-types/{name}/schemas", json=wider).status_code == 201
    assert client.delete(f"/subscriptions/{subscription}").status_code == 204
    assert client.delete(f"/event-types/{name}").status_code == 200
    assert client.put(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    for path, body in was.items():
        answer = client.get(path, params={"as_of": position} | dict(client.build_request("GET", path).url.params))
        assert answer.headers.get("Log-Position") == str(position), answer.text
        assert answer.json() == body | ({"_links": {}} if "_links" in body else {}) if isinstance(body, dict) else body
    assert client.delete(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    (last,) = everything(client, resource=f"subscription:{subscription}", kind="subscription.created")
    by_time = client.get(f"/subscriptions/{subscription}", params={"as_of": last["recorded_at"]})
    assert int(by_time.headers["Log-Position"]) >= last["position"]
    assert client.get("/event-types", params={"name": name}).headers.get("Log-Position") is None


@pytest.mark.parametrize(
    ("moment", "status", "detail"),
    [
        ("0", 422, "before the first entry of the log"),
        ("1999-01-01T00:00:00Z", 422, "before the first entry of the log"),
        ("999999999999999999", 422, "as_of: the log ends at position"),
        ("2999-01-01T00:00:00Z", 422, "is in the future"),
        ("yesterday", 400, "is not a position or an RFC 3339 time"),
        ("-1", 400, "is not a position"),
        ("1", 404, ""),
    ],
)
def test_a_moment_that_the_log_does_not_have_is_named(client, moment, status, detail):
    """Reference audit#past-states."""
    problem(client.get("/event-types/no.such", params={"as_of": moment}), status, detail)


def test_the_status_of_a_subscription_has_no_past(client):
    """Reference audit#past-states."""
    problem(client.get("/subscriptions?show_status=true&as_of=1"), 400, "show_status")


def test_times_of_any_zone_and_precision_are_read(client, name):
    """Reference audit#audit-filters."""
    client.post("/event-types", json=event_type_body(name=name))
    (created,) = everything(client, resource=f"event-type:{name}")
    at = datetime.fromisoformat(created["recorded_at"])
    just_before = (at - timedelta(microseconds=1)).isoformat().replace("+00:00", "Z")
    elsewhere = at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "+00:00"
    for since, until, found in (
        (just_before, None, True),
        (elsewhere, None, True),
        (None, elsewhere, False),
        ((at + timedelta(microseconds=1)).isoformat(), None, False),
        (None, (at + timedelta(microseconds=1)).isoformat(), True),
    ):
        wanted = {key: value for key, value in (("since", since), ("until", until)) if value}
        assert bool(everything(client, resource=f"event-type:{name}", **wanted)) == found
