"""Events in the console: a page of large events stays small, and leads to each of them."""

import re
from uuid import uuid4

import pytest


CHARACTERS_MAX = 8_000
STATISTIC = ("messages_per_minute", "message_size", "read_parallelism", "write_parallelism")
KEYED = {"type": "json_schema", "schema": '{"properties": {"key": {"type": "string"}}}'}
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


def _order(visitor, path, **params):
    shown = visitor.get(f"/console{path}", params={"format": "json", **params}).json()
    assert "problem" not in shown, shown
    return [each["event"].get("data", each["event"])["number"] for each in shown["items"]]


@pytest.mark.parametrize("category", ["undefined", "business", "data"])
@pytest.mark.parametrize("count", [3, 49, 50, 51, 130])
def test_the_newest_events_are_the_newest_of_all_partitions_by_time(visitor, event_type, api, category, count):
    """Also where events have no metadata, and most of them are in one partition."""
    without = category == "undefined"
    name = event_type(
        f"console.newest.{category}-{count}",
        category=category,
        enrichment_strategies=[] if without else ["metadata_enrichment"],
        schema=KEYED,
        partition_strategy="hash",
        partition_key_fields=["key"],
        default_statistic=dict.fromkeys(STATISTIC, 4),
    )
    path = f"/event-types/{name}/events"
    for number in range(count):
        # Two of three are in one partition.
        event = {"number": number, "key": "hot" if number % 3 else str(number)}
        if category == "data":
            event = {"data_type": "order", "data_op": "C", "data": event}
        if not without:
            event["metadata"] = {"eid": str(uuid4()), "occurred_at": "2026-11-20T10:00:00Z"}
        assert api.post(path, json=[event]).status_code == 200
    newest = [*range(count - 1, max(-1, count - 51), -1)]
    assert len({each["cursor"]["partition"] for each in _items(visitor, path)}) > 1
    assert _order(visitor, path) == newest
    assert _order(visitor, path, start="oldest") == sorted(_order(visitor, path, start="oldest"), reverse=True)


def _items(visitor, path):
    return visitor.get(f"/console{path}", params={"format": "json"}).json()["items"]


def test_of_large_events_fewer_are_shown_but_the_newest(visitor, event_type, api):
    path = "/event-types/" + event_type(
        "console.newest-large",
        category="undefined",
        enrichment_strategies=[],
        schema=KEYED,
        partition_strategy="hash",
        partition_key_fields=["key"],
        default_statistic=dict.fromkeys(STATISTIC, 4),
    )
    path += "/events"
    for number in range(12):
        event = {"number": number, "key": str(number), "text": "x" * 300_000}
        assert api.post(path, json=[event]).status_code == 200
    shown = _order(visitor, path)
    assert shown
    assert shown == [*range(11, 11 - len(shown), -1)]


def test_columns_of_changes_of_data_are_members_of_the_data(visitor, event_type, api):
    schema = {"type": "json_schema", "schema": '{"properties": {"colour": {"type": "string"}}}'}
    path = f"/event-types/{event_type('console.data-columns', category='data', schema=schema)}/events"
    event = {"data_type": "order", "data_op": "C", "data": {"colour": "green"}, "metadata": METADATA}
    assert api.post(path, json=[event]).status_code == 200
    assert "<td>green</td>" in visitor.get(f"/console{path}").text


LONG = "0.1234567890123456789"
DIGITS = f'{{"v":{LONG},"x":[1e-400,-0.0,9007199254740993,0e9999999999999999999]}}'
WITHOUT_METADATA = {"category": "undefined", "enrichment_strategies": []}


def _bodies(api, path):
    cursor = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
    params = {"batch_limit": 1, "stream_limit": 2, "stream_timeout": 1, "batch_flush_timeout": 1}
    return api.get(path, params=params, headers=cursor).text


def test_numbers_of_events_are_shown_and_published_with_their_digits(visitor, event_type, api):
    schema = {"type": "json_schema", "schema": '{"properties": {"v": {}, "x": {}}}'}
    path = f"/event-types/{event_type('console.digits', schema=schema, **WITHOUT_METADATA)}/events"
    visitor.get(f"/console{path}")
    assert visitor.post(f"/console{path}", {"action": "publish", "event": DIGITS}).status_code == 303
    assert DIGITS in _bodies(api, path)
    page = visitor.get(f"/console{path}").text
    assert f"<td>{LONG}</td><td>[1E-400,-0.0,9007199254740993,0.0]</td>" in page
    assert f"&#34;v&#34;: {LONG},\n" in page
    params = {"format": "json", "filter": f"event.v == {LONG}"}
    (item,) = visitor.get(f"/console{path}", params=params).json(parse_float=str)["items"]
    assert item["event"] == {"v": LONG, "x": ["1E-400", "-0.0", 9007199254740993, "0.0"]}
    assert item["evaluation"]["matches"]


REFUSED = ('1, "v": 2', "18446744073709551616", "1e400", "01", "NaN", '"\\ud800"')


@pytest.mark.parametrize("changes", [{}, WITHOUT_METADATA], ids=["business", "undefined"])
def test_what_the_broker_refuses_is_not_made_to_fit(visitor, event_type, api, changes):
    path = f"/event-types/{event_type(f'console.refused-{len(changes)}', **changes)}/events"
    visitor.get(f"/console{path}")
    for value in REFUSED:
        answer = visitor.post(f"/console{path}", {"action": "publish", "event": f'{{"v": {value}}}'})
        assert answer.status_code in {400, 422}, value
    refused = visitor.post(f"/console{path}", {"action": "publish", "event": '{"metadata": 0}'}).text
    assert ("The metadata of an event are a JSON object" in refused) == (not changes)
    assert _bodies(api, path).count('"v"') == 0
