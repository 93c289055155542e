"""Lists that come in pages have every item once, in one order, whatever the size of a page: by links and by client."""

import json
from uuid import uuid4

import pytest

from rioni.client import Client


COUNT = 131
"""More than two pages of 64, of 65, and of the client's own size after the limits below."""
LIMITS = (1, 20, 63, 64, 65, 129, 130, 131, 132, 1_000)


@pytest.fixture(scope="module")
def application(server):
    """An application with so many event types, subscriptions, and versions of a schema."""
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


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_links_lead_through_the_whole_list(client, application, path, limit):
    member, text = LISTS[path]
    found = [item[member] for item in walked(client, f"{path.format(app=application)}&limit={limit}", limit)]
    assert len(found) == len(set(found)) == COUNT
    if text is not None:
        assert sorted(found) == [text.format(app=application, number=number) for number in range(COUNT)]
    whole = walked(client, f"{path.format(app=application)}&limit=1000", 1_000)
    assert found == [item[member] for item in whole]


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
