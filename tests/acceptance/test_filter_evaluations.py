"""Filters of low-level streams, and trying filters: reference subscriptions#trying-filters."""

import json

import pytest

from tests.acceptance.conftest import problem


def test_events_are_tried_on_a_filter(client):
    body = {
        "filter": "event.total > 100 && has(event.coupon)",
        "events": [{"total": 120}, {"total": 120, "coupon": "a"}],
    }
    first, second = client.post("/filter-evaluations", json=body).json()["items"]
    assert (first["matches"], second["matches"]) == (False, True)
    assert first["parts"] == [
        {"expression": "event.total > 100", "value": True},
        {"expression": "has(event.coupon)", "value": False},
    ]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"filter": "event.a >", "events": []}, 422, "The filter can't be used"),
        ({"filter": "event.a > 1", "events": [{}] * 21}, 422, "A request may have 20 events"),
        ({"filter": "event.a > 1"}, 422, 'Field "events" must not be null'),
        ({"filter": "event.a > 1", "events": [1]}, 400, ""),
        ([], 400, ""),
    ],
)
def test_what_can_t_be_tried_is_refused(client, body, status, detail):
    response = client.post("/filter-evaluations", json=body)
    assert detail in problem(response, status).get("detail", "")


def test_a_filter_is_compared_with_the_schemas_as_they_are_now(client, create, name):
    """A worker learns of changes within milliseconds; this may not be late by that much."""
    for number in range(5):
        create(f"{name}-{number}", schema={"type": "json_schema", "schema": "{}"})
        body = {"filter": "event.total > 100", "events": [{"total": 120}], "event_types": [f"{name}-{number}"]}
        answer = client.post("/filter-evaluations", json=body)
        assert answer.status_code == 200, answer.text


def test_a_low_level_stream_delivers_what_matches_its_filter(client, create, name):
    create(name, category="undefined", enrichment_strategies=[], schema={"type": "json_schema", "schema": "{}"})
    client.post(f"/event-types/{name}/events", json=[{"number": number} for number in range(5)])
    headers = {"X-Nakadi-Cursors": json.dumps([{"partition": "0", "offset": "BEGIN"}])}
    params = {"filter": "event.number > 2", "stream_limit": 2, "batch_limit": 2}
    lines = client.get(f"/event-types/{name}/events", params=params, headers=headers).text.splitlines()
    events = [event for line in lines for event in json.loads(line).get("events", [])]
    assert events == [{"number": 3}, {"number": 4}]
    refused = client.get(f"/event-types/{name}/events", params={"filter": "event.number >"}, headers=headers)
    assert refused.status_code == 422
