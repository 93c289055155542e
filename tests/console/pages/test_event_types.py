"""Event types in the console, without scripts: search, schema differences, edits with a plan, timelines, deletion."""

import json
import re
from datetime import UTC, datetime
from html import unescape

import pytest

from rioni.console.pages.event_type import VERSIONS_MAX, is_empty, timeline_state
from tests.console.conftest import READER, last_change
from tests.console.markup import forms
from tests.support.waiting import wait_until


PAGE = "/console/event-types/{}"


def _definition(text):
    """The definition in the form of the tab `edit`."""
    return json.loads(unescape(re.search(r'name="definition"[^>]*>(.*?)</textarea>', text, re.DOTALL)[1]))


def _etag(text):
    return unescape(re.search(r'name="etag" value="([^"]*)"', text)[1])


def test_the_list_is_searched_and_paged(visitor, event_type):
    for number in range(3):
        event_type(f"console.paged.{number}", labels={"team": "paging"})
    page = visitor.get("/console/event-types", params={"q": "console.paged", "offset": "1", "format": "json"}).json()
    assert [each["name"] for each in page["items"]] == ["console.paged.1", "console.paged.2"]
    labelled = visitor.get("/console/event-types", params={"label": "team:paging", "format": "json"}).json()
    assert len(labelled["items"]) == 3


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 30])
def test_an_offset_that_is_none_shows_the_beginning(visitor, offset):
    page = visitor.get("/console/event-types", params={"offset": offset, "format": "json"})
    assert page.json()["offset"] == 0


@pytest.mark.parametrize("page", ["/event-types", "/subscriptions", "/event-types/{}"])
def test_a_page_behind_the_last_one_leads_back(visitor, event_type, page):
    # Some were deleted meanwhile; the page does not claim that none exist.
    name = event_type(f"console.behind-{len(page)}")
    text = visitor.get(f"/console{page.format(name)}", params={"tab": "schema", "offset": "1000"}).text
    assert "<span>No more</span>" in text
    assert 'rel="prev"' in text
    assert "There are no" not in text


def test_an_edit_shows_what_would_change_and_is_applied(visitor, event_type, api):
    path = PAGE.format(event_type("console.edited"))
    text = visitor.get(path, params={"tab": "edit"}).text
    definition = _definition(text) | {"labels": {"team": "orders"}}
    form = {"definition": json.dumps(definition), "etag": _etag(text)}
    planned = visitor.post(f"{path}?tab=edit", {"action": "plan", **form})
    assert planned.status_code == 200
    assert "<h3>labels</h3>" in planned.text
    assert api.get("/event-types/console.edited").json()["labels"] == {}
    assert visitor.post(f"{path}?tab=edit", {"action": "apply", **form}).status_code == 303
    assert api.get("/event-types/console.edited").json()["labels"] == {"team": "orders"}
    assert "console.edited is changed" in visitor.get(path).text


def test_consumers_are_shown_with_their_lag_in_events_and_time(visitor, event_type, api):
    name = event_type("console.consumed", category="undefined", enrichment_strategies=[])
    body = {"owning_application": "shop", "event_types": [name], "read_from": "begin"}
    subscription = api.post("/subscriptions", json=body).json()["id"]
    begin = [{"event_type": name, "partition": "0", "offset": "BEGIN"}]
    api.patch(f"/subscriptions/{subscription}/cursors", json={"items": begin}).raise_for_status()
    api.post(f"/event-types/{name}/events", json=[{}])
    path = f"{PAGE.format(name)}?tab=usage"
    wait_until(
        lambda: re.search(r'<td class="number">1</td><td class="number">[1-9]\d* s</td>', visitor.get(path).text)
    )


def test_an_edit_of_what_was_changed_meanwhile_is_refused_and_kept(visitor, event_type, api):
    path = PAGE.format(event_type("console.raced"))
    text = visitor.get(path, params={"tab": "edit"}).text
    other = api.get("/event-types/console.raced").json() | {"labels": {"by": "another"}}
    api.put("/event-types/console.raced", json=other)
    definition = _definition(text) | {"labels": {"by": "console"}}
    form = {"action": "apply", "definition": json.dumps(definition), "etag": _etag(text)}
    planned = visitor.post(f"{path}?tab=edit", form | {"action": "plan"})
    assert "was changed since you began" in planned.text
    again = visitor.post(f"{path}?tab=edit", form | {"action": "plan", "etag": _etag(planned.text)})
    assert "was changed since you began" not in again.text
    refused = visitor.post(f"{path}?tab=edit", form)
    assert refused.status_code == 412
    assert "Changed meanwhile" in refused.text
    assert _definition(refused.text)["labels"] == {"by": "console"}


@pytest.mark.parametrize(("definition", "said"), [("{", "This is not JSON"), ("[]", "This is not an event type")])
def test_what_is_no_definition_is_refused_and_kept(visitor, event_type, definition, said):
    path = PAGE.format(event_type(f"console.refused-{len(said)}"))
    answer = visitor.post(f"{path}?tab=edit", {"action": "apply", "definition": definition})
    assert answer.status_code == 422
    assert said in answer.text
    assert f">{definition}</textarea>" in answer.text


SCHEMAS = {
    "spaces": '{ "type" : "object",\n  "title": "\\u00e4" }',
    "numbers": '{"properties":{"n":{"minimum":0.10000000000000000001,"maximum":1E2}}}',
    "an escape": '{"properties":{"n":{"pattern":"\\/"}}}',
}
"""Texts that another program would write differently."""


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_edit_of_something_else_leaves_the_schema_as_it_is_stored(visitor, event_type, api, schema):
    schema = {"type": "json_schema", "schema": SCHEMAS[schema]}
    name = event_type(f"console.stored-{len(schema['schema'])}", schema=schema)
    before = api.get(f"/event-types/{name}").json()["schema"]
    form = _edit_form(visitor, name)
    definition = form["definition"].replace('"labels": {}', '"labels": {"a": "b"}')
    assert visitor.post(f"{PAGE.format(name)}?tab=edit", {**form, "definition": definition}).status_code == 303
    found = api.get(f"/event-types/{name}").json()
    assert found["labels"] == {"a": "b"}
    assert found["schema"] == before


def test_numbers_of_an_edited_schema_keep_their_digits(visitor, event_type, api):
    schema = {"type": "json_schema", "schema": SCHEMAS["numbers"]}
    name = event_type("console.schema-digits", schema=schema, compatibility_mode="none")
    form = _edit_form(visitor, name)
    assert '"minimum": 0.10000000000000000001' in form["definition"]
    definition = form["definition"].replace('"maximum": 100.0', '"maximum": 9007199254740993.50')
    planned = visitor.post(f"{PAGE.format(name)}?tab=edit", {**form, "definition": definition, "action": "plan"})
    assert "<h3>schema</h3>" in planned.text
    visitor.post(f"{PAGE.format(name)}?tab=edit", {**form, "definition": definition})
    stored = '{"properties":{"n":{"minimum":0.10000000000000000001,"maximum":9007199254740993.50}}}'
    assert api.get(f"/event-types/{name}").json()["schema"]["schema"] == stored


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"labels": {}', '"labels": {"a": "b"}, "labels": {}', "the member labels is there twice"),
        ('"type": "object"', '"type": "object", "type": "array"', "the member type is there twice"),
        ('"labels": {}', '"labels": NaN', "This is not JSON"),
        ('"labels": {}', '"labels": {"a": "\\ud800"}', "This is not JSON"),
        ('"labels": {}', '"labels": 123456789012345678901234567890', "123456789012345678901234567890"),
    ],
)
def test_what_would_not_be_stored_as_it_was_typed_is_refused_and_kept(visitor, event_type, api, before, after, said):
    schema = {"type": "json_schema", "schema": '{"type":"object"}'}
    name = event_type(f"console.typed-{len(after)}-{len(said)}", schema=schema)
    form = _edit_form(visitor, name)
    definition = form["definition"].replace(before, after)
    assert definition != form["definition"]
    tag = api.get(f"/event-types/{name}").headers["etag"]
    for action in ("plan", "apply"):
        answer = visitor.post(f"{PAGE.format(name)}?tab=edit", {**form, "definition": definition, "action": action})
        (kept,) = [each for each in forms(answer.text) if "apply" in each.actions]
        assert kept.fields["definition"] == definition
    assert answer.status_code in (400, 422)
    assert said in unescape(answer.text)
    assert api.get(f"/event-types/{name}").headers["etag"] == tag


def test_an_empty_definition_is_no_present_one(visitor, event_type):
    path = PAGE.format(event_type("console.empty-definition"))
    answer = visitor.post(f"{path}?tab=edit", {"action": "plan", "definition": ""})
    assert "The plan can't be shown" in answer.text


def _edit_form(visitor, name):
    """The fields that the form of the tab `edit` sends."""
    (form,) = [each for each in visitor.forms(f"{PAGE.format(name)}?tab=edit") if "apply" in each.actions]
    return {**form.fields, "action": "apply"}


def test_a_breaking_schema_is_named_with_an_example(visitor, event_type):
    schema = {"type": "json_schema", "schema": json.dumps({"properties": {"a": {"type": "integer"}}})}
    path = PAGE.format(event_type("console.breaking", schema=schema, compatibility_mode="compatible"))
    text = visitor.get(path, params={"tab": "edit"}).text
    definition = _definition(text)
    definition["schema"]["schema"] = {"properties": {"a": {"type": "string"}}}
    planned = visitor.post(f"{path}?tab=edit", {"action": "plan", "definition": json.dumps(definition)})
    assert "may not follow" in planned.text


def test_versions_of_a_schema_are_compared(visitor, event_type, api):
    path = PAGE.format(event_type("console.versions"))
    added = {"type": "json_schema", "schema": json.dumps({"properties": {"added": {"type": "string"}}})}
    api.post("/event-types/console.versions/schemas", json=added)
    data = visitor.get(path, params={"tab": "schema", "against": "1.0.0", "format": "json"}).json()
    assert data["compatibility"]["compatible"]
    assert any(line["sign"] == "+" and "added" in line["text"] for line in data["difference"])


def test_versions_come_in_pages_and_are_compared_across_them(visitor, event_type, api):
    path = PAGE.format(event_type("console.many-versions", compatibility_mode="none"))
    for number in range(VERSIONS_MAX + 4):
        added = {"type": "json_schema", "schema": json.dumps({"properties": {f"n{number}": {"type": "string"}}})}
        assert api.post("/event-types/console.many-versions/schemas", json=added).status_code < 300
    tab = {"tab": "schema", "format": "json"}
    first = visitor.get(path, params=tab).json()
    second = visitor.get(path, params=tab | {"offset": VERSIONS_MAX, "against": first["shown"]["version"]}).json()
    pages = [[each["version"] for each in page["versions"]] for page in (first, second)]
    assert [len(page) for page in pages] == [VERSIONS_MAX, 5]
    assert len({*pages[0], *pages[1]}) == VERSIONS_MAX + 5
    assert (first["more"], second["more"]) == (True, False)
    assert second["against"] == pages[0][0]
    assert second["difference"]
    assert "Next" in visitor.get(path, params={"tab": "schema"}).text
    assert visitor.get(path, params=tab | {"offset": 1_000, "against": "9.9.9"}).json()["against"] is None


def test_a_timeline_begins_in_another_storage(visitor, event_type, api):
    path = PAGE.format(event_type("console.switched"))
    assert visitor.post(path, {"action": "switch", "storage_id": "default"}).status_code == 303
    assert len(api.get("/event-types/console.switched/timelines").json()) == 2
    shown = visitor.get(path, params={"tab": "timelines", "format": "json"}).json()["timelines"]
    assert [each["state"] for each in shown] == ["closed", "active"]
    assert "kept until" in visitor.get(path, params={"tab": "timelines"}).text
    assert visitor.post(path, {"action": "switch", "storage_id": "no such storage"}).status_code == 422


@pytest.mark.parametrize(
    ("switched_at", "cleaned_up_at", "newest", "state"),
    [
        (None, None, True, "switching"),
        ("2026-01-01T00:00:00Z", None, True, "active"),
        ("2026-01-01T00:00:00Z", None, False, "closed"),
        ("2026-01-01T00:00:00Z", "2026-01-03T00:00:00.001Z", False, "closed"),
        ("2026-01-01T00:00:00Z", "2026-01-03T00:00:00.000Z", False, "cleaned up"),
    ],
)
def test_a_timeline_is_cleaned_up_when_its_time_has_come(switched_at, cleaned_up_at, newest, state):
    timeline = {"switched_at": switched_at, "cleaned_up_at": cleaned_up_at}
    assert timeline_state(timeline, datetime(2026, 1, 3, tzinfo=UTC), newest=newest) == state


def test_a_page_of_nothing_leads_on(visitor):
    page = visitor.get(PAGE.format("no.such"))
    assert page.status_code == 404
    assert '<a href="/console/event-types">All event types</a>' in page.text


def test_an_event_type_is_deleted_by_its_name(visitor, event_type, api):
    path = PAGE.format(event_type("console.deleted"))
    assert visitor.post(path, {"action": "delete", "name": "console"}).status_code == 422
    assert visitor.post(path, {"action": "delete", "name": "console.deleted"}).status_code == 303
    assert api.get("/event-types/console.deleted").status_code == 404


@pytest.mark.parametrize(
    ("action", "page", "typed"),
    [
        ("delete", "?tab=edit", {"name": "{name}"}),
        ("apply", "?tab=edit", {}),
        ("partitions", "?tab=partitions", {"count": "2"}),
        ("switch", "?tab=timelines", {"storage_id": "default"}),
        ("publish", "/events", {"event": '{{"typed": 1}}'}),
    ],
)
def test_a_form_changes_no_other_event_type_of_the_same_name(visitor, event_type, api, action, page, typed):
    name = event_type(f"console.again-{action}")
    path = f"{PAGE.format(name)}{page}"
    (form,) = [each for each in visitor.forms(path) if action in each.actions]
    api.delete(f"/event-types/{name}").raise_for_status()
    event_type(name)
    before = last_change(api)
    typed = {field: text.format(name=name) for field, text in typed.items()}
    answer = visitor.post(path, {**form.fields, **typed, "action": action})
    assert answer.status_code == 412
    assert "Changed meanwhile" in answer.text
    assert last_change(api) == before
    assert not api.get(f"/event-types/{name}/partitions").json()[0]["newest_available_offset"].endswith("0")
    (kept,) = [each for each in forms(answer.text) if action in each.actions]
    if action != "apply":
        kept.fields |= {"storage_id": "default"} if action == "switch" else {}
        assert {field: kept.fields[field] for field in typed} == typed
        assert visitor.post(path, {**kept.fields, "action": action}).status_code == 303


def test_a_page_of_the_past_shows_what_was_and_no_changes(visitor, event_type, api):
    path = PAGE.format(event_type("console.past"))
    position = api.get("/audit", params={"resource": "event-type:console.past"}).json()["items"][0]["position"]
    api.delete("/event-types/console.past")
    assert visitor.get(path).status_code == 404
    past = visitor.get(path, params={"as_of": position, "tab": "edit"})
    assert past.status_code == 200
    assert f"You see the broker as it was after entry <strong>{position}</strong>" in past.text
    assert 'value="delete"' not in past.text


def test_rights_are_those_of_the_user(guest, guarded):
    guest.log_in(READER)
    assert guest.post("/console/settings", {"action": "block", "kind": "CONSUMER_APP", "name": "a"}).status_code == 403


def test_partitions_without_events_have_no_oldest_and_newest_one(visitor, api, event_type):
    path = f"/event-types/{event_type('console.empty-partitions', category='undefined', enrichment_strategies=[])}"
    assert visitor.get(f"/console{path}?tab=partitions").text.count('<td class="soft">none</td>') == 2
    api.post(f"{path}/events", json=[{}]).raise_for_status()
    page = visitor.get(f"/console{path}?tab=partitions").text
    assert "none</td>" not in page
    assert page.count("<td><code>001-0001-000000000000000000</code></td>") == 2
    # Retention has deleted the events of a timeline, and the next one has none yet.
    assert is_empty({"oldest_available_offset": "001-0002-000000000000000000", "newest_available_offset": "001-0001-7"})
