"""Lists that come in pages have every item once, in one order, whatever the size of a page: by links and by client."""

import json
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest

from rioni.client import Client
from tests.support.dead_letters import KEEPING, dead_letter, write


COUNT = 131
"""More than two pages of 64, of 65, and of the client's own size after the limits below."""
LIMITS = (1, 20, 63, 64, 65, 129, 130, 131, 132, 1_000)


@pytest.fixture(scope="module")
def application(server):
    """An application with `COUNT` event types, subscriptions, and versions of a schema."""
    app = f"lists-{uuid4().hex[:8]}"
    with server.client() as client:
        for number in range(COUNT):
            body = {
                "name": f"{app}.{number:03}",
                "owning_application": app,
                "category": "undefined",
                "schema": {"type": "json_schema", "schema": "{}"},
            }
            assert client.post("/event-types", json=body).status_code == 201
            body = {"owning_application": app, "event_types": [f"{app}.000"], "consumer_group": f"group-{number:03}"}
            assert client.post("/subscriptions", json=body).status_code == 201
        for number in range(1, COUNT):
            schema = {"description": f"version {number}"}
            body = {"type": "json_schema", "schema": json.dumps(schema)}
            assert client.post(f"/event-types/{app}.000/schemas", json=body).status_code == 201
    return app


@pytest.fixture(scope="module")
def subscription(server, application):
    """The id of a subscription with `COUNT` dead letters."""
    wanted = {"owning_application": "whole-lists", "event_types": [f"{application}.000"], "annotations": KEEPING}
    with server.client() as client:
        found = client.post("/subscriptions", json=wanted).json()["id"]
        write(client, [dead_letter(found, f"{application}.000", number, {}) for number in range(COUNT)])
    return found


def walked(client, path, limit, rel="next"):
    """The items of all pages from a path on, by their links."""
    found, pages = [], 0
    while path:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        items = body if isinstance(body, list) else body["items"]
        assert len(items) <= limit
        found.append(items)
        pages += 1
        assert pages <= COUNT + 2, "pages without end"
        links = {name: link["url"] for name, link in answer.links.items()}
        if isinstance(body, dict):
            links |= {name: link["href"] for name, link in body.get("_links", {}).items()}
        path = links.get(rel, "")
    return [item for items in (found if rel == "next" else reversed(found)) for item in items]


LISTS = {
    "/event-types?owning_application={app}": ("name", "{app}.{number:03}"),
    "/subscriptions?owning_application={app}": ("consumer_group", "group-{number:03}"),
    "/event-types/{app}.000/schemas?": ("version", None),
}
"""Pages by offset."""
BEHIND = {
    "/audit?resource=event-type:{app}.000": ("position", None),
    "/audit?order=asc&states&actor=unauthenticated&realm=&resource=event-type:{app}.000": ("position", None),
    "/subscriptions/{subscription}/dead-letters?": ("offset", "001-0001-{number:018}"),
    "/subscriptions/{subscription}/dead-letters?only_open&show_redriven=&event_type={app}.000": (
        "offset",
        "001-0001-{number:018}",
    ),
}
"""Pages after a place."""
WRONG = ("", "0", "-1", "1001", "x", "1.0", "1e1", "9" * 30, "%D9%A1", "1&limit=1")
"""Limits that are none."""


@pytest.mark.parametrize("path", [*LISTS, *BEHIND])
@pytest.mark.parametrize("limit", LIMITS)
def test_links_lead_through_the_whole_list(client, application, subscription, path, limit):
    member, text = (LISTS | BEHIND)[path]
    path = path.format(app=application, subscription=subscription)
    found = [item[member] for item in walked(client, f"{path}&limit={limit}", limit)]
    assert len(found) == len(set(found)) == COUNT
    if text is not None:
        assert sorted(found) == [text.format(app=application, number=number) for number in range(COUNT)]
    whole = walked(client, f"{path}&limit=1000", 1_000)
    assert found == [item[member] for item in whole]


@pytest.mark.parametrize("path", [*LISTS, *BEHIND, "/audit/denials?"])
@pytest.mark.parametrize("limit", WRONG)
def test_a_limit_that_is_none_is_refused(client, application, subscription, path, limit):
    answer = client.get(f"{path.format(app=application, subscription=subscription)}&limit={limit}")
    assert answer.status_code == 400
    assert "limit" in answer.json()["detail"]


@pytest.mark.parametrize("path", [*BEHIND, "/event-types?annotation=&label=&name=a%26b+c&offset=1"])
def test_links_keep_all_parameters(client, application, subscription, path):
    path = path.format(app=application, subscription=subscription)
    answer = client.get(f"{path}&limit=1")
    links = [link["url"] for link in answer.links.values()]
    if isinstance(answer.json(), dict):
        links += [link["href"] for link in answer.json()["_links"].values()]
    kept = [{*parse_qsl(urlsplit(each).query, keep_blank_values=True)} for each in links]
    given = {*parse_qsl(urlsplit(path).query, keep_blank_values=True)} - {("offset", "1")}
    assert kept
    assert all(given <= each for each in kept)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("limit", [64, 65, 131])
def test_links_lead_back_to_the_beginning(client, application, path, limit):
    member, _ = LISTS[path]
    path = path.format(app=application)
    whole = [item[member] for item in walked(client, f"{path}&limit=1000", 1_000)]
    last = (COUNT - 1) // limit * limit
    back = [item[member] for item in walked(client, f"{path}&offset={last}&limit={limit}", limit, "prev")]
    assert back == whole


def test_pages_by_token_have_the_whole_list(client, application, switch):
    switch("token_subscriptions_iteration")
    for limit in LIMITS:
        found = walked(client, f"/subscriptions?owning_application={application}&limit={limit}", limit)
        assert sorted(each["consumer_group"] for each in found) == [f"group-{number:03}" for number in range(COUNT)]


def test_the_client_lists_everything(server, application):
    with Client(server.url) as client:
        names = [each.name for each in client.event_types.list(owning_application=application)]
        assert names == [f"{application}.{number:03}" for number in range(COUNT)]
        groups = [each.consumer_group for each in client.subscriptions.list(owning_application=application)]
        assert sorted(groups) == [f"group-{number:03}" for number in range(COUNT)]
        assert len(list(client.schemas.list(f"{application}.000"))) == COUNT
