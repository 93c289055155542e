"""`GET /event-types` beyond the contract: filters, pages, entity tags."""

import pytest

from tests.acceptance.conftest import AUTHORIZATION, problem


@pytest.fixture
def names(create, name):
    """Five event types."""
    return [create(f"{name}.{letter}", owning_application=name) for letter in "abcde"]


def _names(response):
    assert response.status_code == 200, response.text
    return [each["name"] for each in response.json()]


def test_the_list_supports_every_filter(client, create, name):
    """Reference event-types#list-filters."""
    create(f"{name}.a", authorization=AUTHORIZATION, labels={"team": "x"}, annotations={"note": "a:b, c"})
    create(f"{name}.b")
    asked = {"name": f"{name}.*", "category": "BUSINESS", "label": ["team", "team:x"], "annotation": "note:a:b, c"}
    who = {"admin": "user:alice", "reader": "user:alice", "writer": "user:alice"}
    assert _names(client.get("/event-types", params=asked | who)) == [f"{name}.a"]
    assert _names(client.get("/event-types", params=asked | {"label": "team:y"})) == []
    assert _names(client.get("/event-types", params=asked | {"cleanup_policy": "DELETE"})) == [f"{name}.a"]
    assert _names(client.get("/event-types", params=asked | {"cleanup_policy": "compact"})) == []
    problem(client.get("/event-types", params={"category": "x"}), 400, "Possible values: [undefined, data, business]")
    problem(client.get("/event-types", params={"cleanup_policy": "x"}), 400, "Possible values: [delete, compact")
    for each in who:
        problem(client.get("/event-types", params={each: "alice"}), 400, "Should be data_type:value")


def test_labels_may_be_a_list_with_commas(client, create, name):
    """Reference event-types#list-filters, common#query-parameters."""
    create(f"{name}.a", labels={"team": "x", "tier": "1"})
    create(f"{name}.b", labels={"team": "x"})
    for label in ("team:x,tier", ["team:x", "tier"], "team,tier:1,"):
        assert _names(client.get("/event-types", params={"name": f"{name}.*", "label": label})) == [f"{name}.a"]


def test_the_links_lead_through_all_pages_and_back(client, names, name):
    """Reference common#page-links."""
    asked = {"owning_application": name, "name": f"{name}.*"}
    page = client.get("/event-types", params=asked | {"limit": 2})
    seen = [_names(page)]
    while "next" in page.links:
        page = client.get(page.links["next"]["url"])
        seen.append(_names(page))
    assert seen == [names[:2], names[2:4], names[4:]]
    back = [_names(page := client.get(page.links["prev"]["url"])) for _ in range(2)]
    assert back == [names[2:4], names[:2]]
    assert "prev" not in page.links


def test_without_limit_and_offset_the_list_is_complete(client, names, name):
    """Reference common#pagination."""
    whole = client.get("/event-types", params={"owning_application": name})
    assert _names(whole) == names
    assert "link" not in whole.headers


def test_an_offset_beyond_the_end_has_a_link_back_and_none_forward(client, names, name):
    """Reference common#page-links."""
    page = client.get("/event-types", params={"owning_application": name, "offset": 50, "limit": 10})
    assert _names(page) == []
    assert list(page.links) == ["prev"]


def test_links_are_returned_as_headers_for_every_query(client, names):
    page = client.get("/event-types", params={"limit": 1, "owning_application": '\r\nX-Evil: 1">,<é'})
    assert page.status_code == 200
    assert "x-evil" not in page.headers
    page = client.get("/event-types", params={"limit": 1, "x": '\r\nX-Evil: 1">,<é'})
    assert _names(client.get(page.links["next"]["url"]))


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limit=0", "'limit' parameter should have value between 1 and 1000"),
        ("limit=1001", "'limit' parameter should have value between 1 and 1000"),
        ("limit=x", "limit: 'x' is not an integer"),
        ("offset=-1", "'offset' parameter can't be lower than 0"),
        ("offset=x", "offset: 'x' is not an integer"),
    ],
)
def test_invalid_pages_are_rejected(client, query, detail):
    """Reference common#pagination, common#query-parameters."""
    problem(client.get(f"/event-types?{query}"), 400, detail)


def test_an_unchanged_list_is_not_sent_again(client, create, names, name):
    """Reference event-types#entity-tags."""
    asked = {"owning_application": name, "limit": 3}
    first = client.get("/event-types", params=asked)
    known = {"If-None-Match": first.headers["etag"]}
    again = client.get("/event-types", params=asked, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["link"] == first.headers["link"]
    create(f"{name}.aa", owning_application=name)
    assert client.get("/event-types", params=asked, headers=known).status_code == 200


@pytest.mark.both_modes
def test_event_types_are_counted_by_what_they_have_in_common(client, create, name):
    """Reference event-types#facets."""
    create(f"{name}.a", owning_application=name, labels={"team": "x"}, annotations={"note": name})
    create(f"{name}.b", owning_application=name, annotations={"note": name})
    create(f"{name}.c", annotations={"note": name})
    asked = {"annotation": f"note:{name}"}
    counted = client.get("/event-type-facets", params=asked).json()
    assert counted["total"] == 3
    assert counted["owning_application"] == {
        "values": [{"value": name, "count": 2}, {"value": "shop", "count": 1}],
        "distinct": 2,
    }
    assert counted["category"]["values"] == [{"value": "business", "count": 3}]
    assert counted["label"]["values"] == [{"value": "team:x", "count": 1}]
    assert counted["unused"] == {"days": 30, "count": 0}
    one = client.get("/event-type-facets", params=asked | {"limit": 1, "label": "team"}).json()
    assert one["total"] == 1
    assert one["owning_application"] == {"values": [{"value": name, "count": 1}], "distinct": 1}


def test_event_types_are_counted_as_they_were(client, create, name):
    """Reference event-types#facets, audit#past-states."""
    create(f"{name}.a", labels={"team": "x"})
    position = client.get("/audit", params={"limit": 1}).headers["Log-Position"]
    create(f"{name}.b", labels={"team": "x"})
    asked = {"name": f"{name}.*"}
    assert client.get("/event-type-facets", params=asked).json()["total"] == 2
    then = client.get("/event-type-facets", params=asked | {"as_of": position})
    assert then.headers["Log-Position"] == position
    assert (then.json()["total"], then.json()["label"]["values"]) == (1, [{"value": "team:x", "count": 1}])
    assert "unused" not in then.json()


def test_only_old_event_types_are_unused(client, create, name):
    """Reference event-types#unused."""
    create(name)
    assert _names(client.get("/event-types", params={"name": name, "unused_days": 1})) == []
    counted = client.get("/event-type-facets", params={"name": name, "unused_days": 7}).json()
    assert (counted["total"], counted["unused"]) == (0, {"days": 7, "count": 0})


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("unused_days=0", "'unused_days' parameter should have value between 1 and 90"),
        ("unused_days=91", "'unused_days' parameter should have value between 1 and 90"),
        ("unused_days=x", "unused_days: 'x' is not an integer"),
        ("unused_days=1&as_of=1", "unused_days can't be combined with as_of"),
    ],
)
@pytest.mark.parametrize("path", ["/event-types", "/event-type-facets"])
def test_invalid_questions_about_use_are_rejected(client, path, query, detail):
    """Reference event-types#unused."""
    problem(client.get(f"{path}?{query}"), 400, detail)


def test_an_invalid_number_of_values_is_rejected(client):
    """Reference event-types#facets."""
    problem(client.get("/event-type-facets?limit=0"), 400, "'limit' parameter should have value between 1 and 1000")
