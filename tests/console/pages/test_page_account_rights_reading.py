"""Data that users may not read is in no page, JSON, export, view of the past or answer to scripts."""

from urllib.parse import quote

import httpx
import pytest

from tests.console.conftest import ADMIN, READER, Visitor
from tests.console.sample import ADDRESSES
from tests.support import dead_letters
from tests.support.tokens import bearer


NAME, SECRET = "console.secret", "known-to-readers-alone"
SECTION = {kind: [{"data_type": "user", "value": who}] for kind, who in (("admins", "owner"), ("writers", "publisher"))}
SECTION["readers"] = [{"data_type": "user", "value": "consumer"}]
FILTER = quote("event.secret != 'x'")
STREAM = "stream_limit=1&batch_limit=1&batch_flush_timeout=1&stream_timeout=1"
OF_EVENTS = (
    *(each for each in ADDRESSES if "{name}" in each or "{id}" in each),
    "/event-types/{name}/events?start=oldest",
    "/event-types/{name}/events?start=offset&offset=BEGIN",
    f"/event-types/{{name}}/events?filter={FILTER}",
    "/subscriptions/{id}?tab=dead+letters&preview=yes",
    f"/subscriptions/{{id}}?tab=dead+letters&reason={quote(dead_letters.REASON)}",
    "/event-types/nakadi.dead.letter.queue/events",
)
"""Addresses of pages that could show events."""
OF_SCRIPTS = (
    f"/event-types/{{name}}/events?{STREAM}",
    f"/event-types/{{name}}/events?{STREAM}&filter={FILTER}",
    f"/event-types/nakadi.dead.letter.queue/events?{STREAM}",
    "/subscriptions/{id}/dead-letters",
)
SHOWN = (
    ("/", "nodes", "/nodes"),
    ("/", "changes", "/audit"),
    ("/audit", "items", "/audit"),
    ("/audit", "denials", "/audit/denials"),
    ("/storages", "items", "/storages"),
    ("/settings", "features", "/settings/features"),
    ("/settings", "admins", "/settings/admins"),
    ("/settings", "blacklist", "/settings/blacklist"),
    ("/jobs", "backups", "/jobs"),
    ("/event-types/{name}?tab=usage", "producers", "/event-types/{name}/producers"),
    ("/event-types/{name}?tab=partitions", "partitions", "/event-types/{name}/partitions"),
    ("/event-types/{name}?tab=timelines", "timelines", "/event-types/{name}/timelines"),
    ("/event-types/{name}/events", "items", "/event-types/{name}/partitions"),
    ("/subscriptions/{id}", "stats", "/subscriptions/{id}/stats"),
    ("/subscriptions/{id}", "ended_streams", "/subscriptions/{id}/ended-streams"),
    ("/subscriptions/{id}", "cursors", "/subscriptions/{id}/cursors"),
    ("/subscriptions/{id}?tab=dead+letters", "dead_letters", "/subscriptions/{id}/dead-letters"),
)
"""A page, a member of its data, and where in the API that comes from."""


@pytest.fixture(scope="module")
def secret(guarded):
    """An event, and a dead letter, that only one user and the administrator may read."""
    with guarded.client(headers=bearer(ADMIN)) as api:
        body = {"name": NAME, "owning_application": "shop", "category": "undefined", "authorization": SECTION}
        schema = {"type": "json_schema", "schema": '{"properties": {"secret": {}}}'}
        api.post("/event-types", json=body | {"schema": schema}).raise_for_status()
        api.post(f"/event-types/{NAME}/events", json=[{"secret": SECRET}]).raise_for_status()
        wanted = {
            "owning_application": "secret",
            "event_types": [NAME],
            "read_from": "begin",
            "annotations": dead_letters.KEEPING,
            "authorization": dict.fromkeys(("admins", "readers"), SECTION["admins"]),
        }
        subscription = api.post("/subscriptions", json=wanted).json()["id"]
        dead_letters.write(api, [dead_letters.dead_letter(subscription, NAME, 0, {"secret": SECRET})])
        position = api.get("/audit").headers["log-position"]
    return {"name": NAME, "id": subscription, "position": position}


def addresses(secret):
    """Addresses of events, as pages and as JSON, now and then."""
    for address in OF_EVENTS:
        path = f"/console{address.format(**secret)}"
        joined = "&" if "?" in path else "?"
        yield from (path, f"{path}{joined}format=json", f"{path}{joined}as_of={secret['position']}")
    yield from (f"/console/api{address.format(**secret)}" for address in OF_SCRIPTS)


def showing(visitor, secret):
    """The addresses that show the event."""
    visitor.http.headers["X-Nakadi-Cursors"] = '[{"partition": "0", "offset": "BEGIN"}]'
    return [path for path in addresses(secret) if SECRET in visitor.get(path).text]


@pytest.mark.parametrize("token", [READER, "publisher", "owner", "writer"])
def test_events_are_in_no_answer_to_those_who_may_not_read_them(guest, secret, token):
    guest.log_in(token)
    assert showing(guest, secret) == []


def test_events_are_shown_to_those_who_may_read_them(guest, secret):
    guest.log_in("consumer")
    found = showing(guest, secret)
    assert found
    assert all(f"/event-types/{NAME}/events" in path for path in found)
    guest.log_in(ADMIN)
    assert any("dead-letters" in path for path in showing(guest, secret))


@pytest.mark.parametrize("token", [READER, "consumer", "owner", "viewer", "operator", ADMIN])
def test_pages_show_what_the_api_shows_to_that_user(guarded, guest, secret, token):
    guest.log_in(token)
    with guarded.client(headers=bearer(token)) as api, Visitor(guarded.url) as nobody:
        for address, member, path in SHOWN:
            asked = path.format(**secret)
            refused = api.get(asked).status_code == 403
            assert (guest.get(f"/console/api{asked}").status_code == 403) == refused, path
            assert nobody.get(f"/console/api{asked}").status_code == 401
            for params in ({}, {"as_of": secret["position"]}):
                url = httpx.URL(f"/console{address.format(**secret)}").copy_merge_params({"format": "json", **params})
                page = guest.get(str(url)).json()
                data = page.get(member, page)
                is_shown = "problem" not in data and "problem" not in page
                # Some pages show nothing of the past to anybody.
                assert is_shown != refused or data == {"items": []}, (address, member, params)
