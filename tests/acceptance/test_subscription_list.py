"""`GET /subscriptions`: reference subscriptions#list, subscriptions#list-status."""

import uuid

import pytest

from tests.acceptance.conftest import ATTRIBUTE, partitions, problem, rows
from tests.support.server import open_stream


FULL = "event_type={0}.a&event_type={0}.b&reader=user:alice&owning_application={1}&show_status=true&{2}&limit=1"


@pytest.fixture
def app():
    return f"app-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def three(client, create, name, app):
    """Three subscriptions of one application to two event types, in the order of their creation."""
    event_types = [create(f"{name}.a"), create(f"{name}.b", **partitions(2))]
    lists = {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE]}
    body = {"owning_application": app, "event_types": event_types, "authorization": lists}
    groups = ("one", "two", "three")
    return [client.post("/subscriptions", json=body | {"consumer_group": group}).json()["id"] for group in groups]


@pytest.fixture
def page(client, app):
    """A page of the application's subscriptions: the ids, and the links without their common part."""

    def page(query):
        response = client.get(f"/subscriptions?owning_application={app}&{query}")
        assert response.status_code == 200, response.text
        body = response.json()
        assert list(body) == ["items", "_links"]
        prefix = f"/subscriptions?owning_application={app}&"
        links = {rel: link["href"].removeprefix(prefix) for rel, link in body["_links"].items()}
        return [item["id"] for item in body["items"]], links

    return page


@pytest.mark.parametrize(
    ("query", "found", "links"),
    rows(
        ("default: 20, newest first", "", [2, 1, 0], {}),
        ("next of a full page", "limit=2", [2, 1], {"next": "offset=2&limit=2"}),
        ("prev", "offset=2&limit=2", [0], {"prev": "offset=0&limit=2"}),
        ("both", "offset=1&limit=1", [1], {"prev": "offset=0&limit=1", "next": "offset=2&limit=1"}),
        ("prev is never negative", "offset=1&limit=5", [1, 0], {"prev": "offset=0&limit=5"}),
        ("a full last page has a next one", "limit=3", [2, 1, 0], {"next": "offset=3&limit=3"}),
        ("which is empty", "offset=3&limit=3", [], {"prev": "offset=0&limit=3"}),
        ("far beyond", "offset=100&limit=1000", [], {"prev": "offset=0&limit=1000"}),
    ),
)
def test_pages_by_offset(three, page, query, found, links):
    """Reference subscriptions#pages-by-offset."""
    assert page(query) == ([three[number] for number in found], links)


@pytest.mark.parametrize(
    ("query", "found", "links"),
    rows(
        ("new", "limit=2&token=new", [0, 1], {"next": "F1"}),
        ("F", "limit=2&token=F1", [2], {"prev": "B2"}),
        ("F, not the last", "limit=1&token=F0", [1], {"prev": "B1", "next": "F1"}),
        ("F, a full last page has no next one", "limit=1&token=F1", [2], {"prev": "B2"}),
        ("W", "limit=2&token=W1", [1, 2], {"prev": "B1"}),
        ("B", "limit=2&token=B2", [0, 1], {"next": "F1"}),
        ("B, not the first", "limit=1&token=B2", [1], {"prev": "B1", "next": "F1"}),
        ("I", "limit=2&token=I2", [1, 2], {"prev": "B1", "next": "F2"}),
        ("offset is nothing then", "limit=2&token=F1&offset=7", [2], {"prev": "B2"}),
        ("all", "token=new", [0, 1, 2], {}),
    ),
)
def test_pages_by_token_are_ordered_by_id(three, page, query, found, links):
    """Here the tokens end with the rank of the id.

    Source: reference subscriptions#pages-by-token.
    """
    ordered = sorted(three)

    def token(text):
        return f"{text[0]}{ordered[int(text[1])]}"

    parts = dict(part.split("=") for part in query.split("&"))
    if parts["token"] != "new":
        parts["token"] = token(parts["token"])
    limit = parts.get("limit", "20")
    ids, answered = page("&".join(f"{name}={value}" for name, value in parts.items()))
    assert ids == [ordered[number] for number in found]
    assert answered == {rel: f"token={token(text)}&limit={limit}" for rel, text in links.items()}


def test_a_feature_makes_pages_by_token_the_default(three, page, switch):
    """Reference subscriptions#pages-by-token."""
    switch("token_subscription_iteration")
    ordered = sorted(three)
    assert page("limit=2") == (ordered[:2], {"next": f"token=F{ordered[1]}&limit=2"})
    assert page("limit=2&offset=2") == (three[:1], {"prev": "offset=0&limit=2"})


def test_links_repeat_the_query_in_the_documented_order(client, three, name, app):
    """Reference subscriptions#page-links."""
    query = "&".join(reversed(FULL.format(name, app, "offset=1").split("&")))
    links = client.get(f"/subscriptions?{query}").json()["_links"]
    # Event types stay in the order of the request.
    full = FULL.replace("{0}.a", "{0}.B").replace("{0}.b", "{0}.a").replace("{0}.B", "{0}.b")
    places = {"prev": "offset=0", "next": "offset=2"}
    assert links == {rel: {"href": f"/subscriptions?{full.format(name, app, place)}"} for rel, place in places.items()}
    first = min(three)
    links = client.get(f"/subscriptions?{query}&token=new").json()["_links"]
    assert links == {"next": {"href": f"/subscriptions?{full.format(name, app, f'token=F{first}')}"}}
    assert client.get(links["next"]["href"]).json()["items"][0]["id"] == sorted(three)[1]


@pytest.mark.parametrize(
    ("query", "found"),
    rows(
        ("event_type", "event_type={0}.a", True),
        ("event_type: all of them", "event_type={0}.a&event_type={0}.b", True),
        ("event_type: a list with commas", "event_type={0}.a,{0}.b", True),
        ("event_type: commas, not all of them", "event_type={0}.a,{0}.c", False),
        ("event_type: commas that are encoded", "event_type={0}.a%2C{0}.b", True),
        ("event_type: not all of them", "event_type={0}.a&event_type={0}.c", False),
        ("reader", "reader=user:alice", True),
        ("reader: listed explicitly", "reader=user:bob", False),
        ("together", "event_type={0}.a&reader=user:alice", True),
        ("together, one does not fit", "event_type={0}.a&reader=service:alice", False),
    ),
)
def test_subscriptions_are_filtered(three, page, name, query, found):
    assert page(query.format(name)) == (three[::-1] if found else [], {})


def test_only_the_named_application_is_listed(client, three, subscribe, name, app):
    subscribe(f"{name}.a")
    assert {item["id"] for item in client.get(f"/subscriptions?owning_application={app}").json()["items"]} == {*three}
    assert client.get(f"/subscriptions?owning_application={app}x").json() == {"items": [], "_links": {}}


@pytest.mark.parametrize(
    ("query", "detail"),
    rows(
        ("limit too low", "limit=0", "'limit' parameter should have value between 1 and 1000"),
        ("limit too high", "limit=1001", "'limit' parameter should have value between 1 and 1000"),
        ("limit no number", "limit=x", "limit"),
        ("offset negative", "offset=-1", "'offset' parameter can't be lower than 0"),
        ("offset no number", "offset=x", "offset"),
        ("reader", "reader=alice", "data_type:value"),
        ("token", "token=X1", "token"),
        ("token without id", "token=F", "token"),
        ("show_status", "show_status=x", "show_status"),
    ),
)
def test_bad_parameters_are_rejected(client, query, detail):
    """Reference common#query-parameters."""
    problem(client.get(f"/subscriptions?{query}"), 400, detail)


def test_the_status_shows_the_partitions_of_each_event_type(client, server, three, name, app):
    def status():
        item = client.get(f"/subscriptions?owning_application={app}&show_status=true").json()["items"][2]
        assert (item["id"], list(item)[-1]) == (three[0], "status")
        return item["status"]

    no_owner = {"state": "unassigned", "stream_id": ""}
    assert status() == [
        {"event_type": f"{name}.a", "partitions": [{"partition": "0", **no_owner}]},
        {"event_type": f"{name}.b", "partitions": [{"partition": "0", **no_owner}, {"partition": "1", **no_owner}]},
    ]
    body = {"partitions": [{"event_type": f"{name}.b", "partition": "1"}]}
    path = f"/subscriptions/{three[0]}/events"
    with server.client() as other, open_stream(other, path, "POST", json=body) as stream:
        owner = {"state": "assigned", "stream_id": stream.stream_id, "assignment_type": "direct"}
        assert status() == [
            {"event_type": f"{name}.a", "partitions": [{"partition": "0", **no_owner}]},
            {"event_type": f"{name}.b", "partitions": [{"partition": "0", **no_owner}, {"partition": "1", **owner}]},
        ]
    plain = client.get(f"/subscriptions?owning_application={app}").json()["items"]
    assert all("status" not in item for item in plain)
