"""Events in the console: a page of large events stays small, and leads to each of them."""

import re


CHARACTERS_MAX = 8_000
METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}


def test_large_events_are_cut_with_a_link_to_the_whole(visitor, event_type, api):
    path = f"/event-types/{event_type('console.large')}/events"
    events = [{"order_id": str(number), "text": "x<" * 50_000, "metadata": METADATA} for number in range(5)]
    assert api.post(path, json=events).status_code == 200
    page = visitor.get(f"/console{path}").text
    # A character takes four in HTML.
    assert len(page) < 5 * 4 * CHARACTERS_MAX
    assert "These are the first 8,000 of" in page
    links = re.findall(r'href="(/console[^"]*only=1[^"]*)"', page)
    assert len(links) == 5
    wholes = [visitor.get(link.replace("&amp;", "&")).json()["items"] for link in links]
    assert all(len(items) == 1 for items in wholes)
    assert {items[0]["event"]["order_id"] for items in wholes} == set("01234")
    assert all(items[0]["event"]["text"] == "x<" * 50_000 for items in wholes)


def test_a_page_reads_a_bounded_number_of_bytes(visitor, event_type, api):
    path = f"/event-types/{event_type('console.larger')}/events"
    for _ in range(4):
        assert api.post(path, json=[{"text": "x" * 500_000, "metadata": METADATA}]).status_code == 200
    assert 1 <= len(visitor.get(f"/console{path}", params={"format": "json"}).json()["items"]) < 4


def test_small_events_are_shown_whole(visitor, event_type, api):
    path = f"/event-types/{event_type('console.small')}/events"
    assert api.post(path, json=[{"order_id": "1", "text": "x" * 100, "metadata": METADATA}]).status_code == 200
    page = visitor.get(f"/console{path}").text
    assert "x" * 100 in page
    assert "These are the first" not in page
