"""Subscriptions and events in the console, without scripts."""

import json
import re
from html import unescape

import pytest

from rioni.console.pages import subscriptions
from rioni.console.pages.page import PAGE
from rioni.domain.streaming.messages import Reason
from tests.console.markup import forms
from tests.support.server import open_stream
from tests.support.waiting import wait_until


def _walked(visitor, path, rel):
    """The ids of the subscriptions on each page, from one page on along its links."""
    pages = []
    while path is not None:
        text = visitor.get(path).text
        pages.append(re.findall(r'<th scope="row"><a href="/console/subscriptions/([^"]+)"', text))
        found = re.search(rf'rel="{rel}" href="([^"]+)"', text)
        last, path = path, unescape(found[1]) if found else None
    return pages, last


@pytest.mark.one_server
@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1])
def test_each_subscription_is_on_one_page(visitor, api, event_type, by_token, count):
    name = event_type(f"console.pages-{count}-{by_token}")
    body = {"owning_application": name, "event_types": [name]}
    made = {api.post("/subscriptions", json=body | {"consumer_group": f"{n}"}).json()["id"] for n in range(count)}
    feature = {"feature": "token_subscriptions_iteration", "enabled": by_token}
    try:
        api.post("/settings/features", json=feature).raise_for_status()
        pages, last = _walked(visitor, f"/console/subscriptions?owning_application={name}", "next")
        back, _ = _walked(visitor, last, "prev")
    finally:
        api.post("/settings/features", json=feature | {"enabled": False}).raise_for_status()
    sizes = [min(PAGE, count - start) for start in range(0, max(count, 1), PAGE)]
    assert [len(page) for page in pages] == sizes
    assert {each for page in pages for each in page} == made
    assert back == [*reversed(pages)]


@pytest.fixture
def subscription(api, event_type):
    """Creates an event type with three events and a subscription to it; returns both names."""

    def create(name):
        event_type(name, category="undefined", enrichment_strategies=[])
        api.post(f"/event-types/{name}/events", json=[{"number": number} for number in range(3)])
        body = {"owning_application": "shop", "event_types": [name], "read_from": "begin"}
        return api.post("/subscriptions", json=body).json()["id"]

    return create


def test_events_are_shown_from_any_place(visitor, subscription, api):
    subscription("console.shown")
    path = "/console/event-types/console.shown/events"

    def shown(**params):
        found = visitor.get(path, params={"format": "json", **params}).json()
        return sorted(item["event"]["number"] for item in found["items"])

    assert shown() == shown(start="oldest") == shown(start="time", time="2020-01-01T00:00:00Z") == [0, 1, 2]
    assert shown(start="offset", offset="001-0001-000000000000000001", partition="0") == [1, 2]
    assert shown(start="offset", offset="BEGIN") == [0, 1, 2]
    assert shown(start="time", time="2999-01-01T00:00:00Z") == []
    wrong = visitor.get(path, params={"start": "time", "time": "yesterday"})
    assert wrong.status_code == 200
    assert "The events can&#39;t be shown" in wrong.text or "can't be shown" in wrong.text


def test_what_is_wrong_with_a_time_or_a_filter_is_said_once_and_without_events_too(visitor, event_type):
    load = dict.fromkeys(("messages_per_minute", "message_size"), 1) | {"read_parallelism": 3, "write_parallelism": 3}
    path = f"/console/event-types/{event_type('console.times', default_statistic=load)}/events"
    page = visitor.get(path, params={"start": "time", "time": "yesterday"}).text
    assert page.count("must be a valid date-time") == 1
    assert "| event.n &gt;" in visitor.get(path, params={"filter": "event.n >"}).text


def test_an_event_is_published_with_metadata(visitor, event_type, api):
    event_type("console.published")
    path = "/console/event-types/console.published/events"
    assert visitor.post(path, {"action": "publish", "event": '{"number": 7}'}).status_code == 303
    (item,) = visitor.get(path, params={"format": "json"}).json()["items"]
    assert item["event"]["number"] == 7
    for wrong in ("{", "[]"):
        answer = visitor.post(path, {"action": "publish", "event": wrong})
        assert answer.status_code == 422
        assert f">{wrong}</textarea>" in answer.text


def test_a_reset_is_previewed_and_made(visitor, subscription, api):
    path = f"/console/subscriptions/{(id_ := subscription('console.reset'))}"
    preview = visitor.post(f"{path}?tab=reset", {"action": "preview", "to": "begin"})
    assert "3 events would be delivered" in preview.text
    assert api.get(f"/subscriptions/{id_}/cursors").json()["items"] == []
    assert visitor.post(f"{path}?tab=reset", {"action": "reset", "to": "end"}).status_code == 303
    assert api.get(f"/subscriptions/{id_}/cursors").json()["items"][0]["offset"].endswith("2")
    refused = visitor.post(f"{path}?tab=reset", {"action": "reset", "to": "time"})
    assert refused.status_code == 422
    assert "Choose where to" in refused.text


def test_a_subscription_is_cloned_where_it_is(visitor, subscription, api):
    id_ = subscription("console.cloned")
    path = f"/console/subscriptions/{id_}"
    visitor.post(f"{path}?tab=reset", {"action": "reset", "to": "end"})
    answer = visitor.post(path, {"action": "clone", "consumer_group": "another"})
    clone = api.get(answer.headers["location"].removeprefix("/console")).json()
    assert (clone["consumer_group"], clone["read_from"]) == ("another", "cursors")
    assert clone["initial_cursors"][0]["offset"].endswith("2")


def test_a_filter_that_was_changed_meanwhile_is_not_changed_back(visitor, subscription, api):
    path = f"/subscriptions/{subscription('console.filtered-twice')}"
    page = f"/console{path}?tab=definition"
    (form,) = [each for each in visitor.forms(page) if "filter" in each.actions]
    api.put(path, json=api.get(path).json() | {"filter": "event.other == 1"}).raise_for_status()
    answer = visitor.post(page, form.fields | {"filter": "event.mine == 1", "action": "filter"})
    assert answer.status_code == 412
    assert ">event.mine == 1</textarea>" in answer.text
    assert api.get(path).json()["filter"] == "event.other == 1"


def test_what_the_broker_warns_of_is_told(visitor, event_type, api):
    schema = {"type": "json_schema", "schema": '{"properties": {"a": {"type": "string"}}}'}
    pages = {}
    for name, mode in (("console.warned", "forward"), ("console.closed", "none")):
        event_type(name, schema=schema, compatibility_mode=mode)
        body = {"owning_application": "shop", "event_types": [name], "read_from": "begin"}
        pages[name] = f"/console/subscriptions/{api.post('/subscriptions', json=body).json()['id']}?tab=definition"

    def told(address, form):
        answer = visitor.post(address, form)
        assert answer.status_code == 303, re.findall(r'role="alert">.*?</p>', answer.text)
        page = visitor.get(pages["console.warned"]).text
        return unescape(re.search(r'role="status">(.*?)</p>', page)[1])

    page = pages["console.warned"]
    said = "The filter is changed. Warning: event.b: the schema of console.warned does not declare it"
    assert told(page, {"action": "filter", "filter": 'event.b == "x"'}) == said
    assert told(page, {"action": "filter", "filter": 'event.a == "x"'}) == "The filter is changed"
    said = "The filter is changed. 2 warnings: event.b: the schema of console.warned does not declare it; event.c: "
    assert told(page, {"action": "filter", "filter": "event.b == 1 && event.c == 1"}).startswith(said)
    said = "The subscription is created. 2 warnings: event.b: "
    assert told(page, {"action": "clone", "consumer_group": "another"}).startswith(said)
    told(pages["console.closed"], {"action": "filter", "filter": 'event.a == "x"'})
    edit = "/console/event-types/console.closed?tab=edit"
    (form,) = [each for each in visitor.forms(edit) if "apply" in each.actions]
    definition = form.fields["definition"].replace('"a": {', '"other": {')
    said = "console.closed is changed. Warning: "
    assert told(edit, form.fields | {"definition": definition, "action": "apply"}).startswith(said)


def test_a_clone_that_is_refused_keeps_what_was_typed(visitor, subscription, api):
    page = f"/console/subscriptions/{subscription('console.clone-refused')}?tab=definition"
    typed = "a" * 5_000 + ' "<b>'
    answer = visitor.post(page, {"action": "clone", "consumer_group": typed})
    if answer.status_code == 303:
        assert api.get(answer.headers["location"].removeprefix("/console")).json()["consumer_group"] == typed
    else:
        (form,) = [each for each in forms(answer.text) if "clone" in each.actions]
        assert form.fields["consumer_group"] == typed


def test_a_subscription_that_nobody_reads_says_how_to(visitor, subscription):
    id_ = subscription("console.unread")
    path = f"/console/subscriptions/{id_}"
    page = visitor.get(path).text
    assert "It has not been read yet" in page
    assert f"/subscriptions/{id_}/events</code>" in page
    assert visitor.get(f"{path}?format=json").json()["summary"]["events"] == 3
    visitor.post(f"{path}?tab=reset", {"action": "reset", "to": "begin"})
    assert "It has not been read yet" not in visitor.get(path).text


def test_ended_streams_are_shown_with_their_reason_and_what_to_do(visitor, subscription, api):
    id_ = subscription("console.ended")
    path = f"/console/subscriptions/{id_}"
    assert "No stream of it has ended in the last 90 days" in visitor.get(path).text
    with open_stream(api, f"/subscriptions/{id_}/events?commit_timeout=1") as stream:
        stream.batches()
    with open_stream(api, f"/subscriptions/{id_}/events") as stream:
        assert visitor.post(path, {"action": "close", "stream_id": stream.stream_id}).status_code == 303
        stream.batches()

    def ended():
        return visitor.get(f"{path}?format=json").json()["ended_streams"]["items"]

    wait_until(lambda: [each["reason"] for each in ended()] == ["session_ended", "commit_timeout"])
    closed, late = ended()
    assert (closed["client"], closed["count"]) == ("unauthenticated", 1)
    shown = visitor.get(path).text
    for each in (closed, late):
        assert each["meaning"] in shown
        assert each["advice"] in shown
    position = api.get("/audit", params={"resource": f"subscription:{id_}"}).json()["items"][0]["position"]
    past = visitor.get(path, params={"as_of": position}).text
    assert "No stream of it has ended" not in past
    assert "Ended streams" not in past


def test_every_reason_of_an_end_has_words():
    assert list(subscriptions.REASONS) == [reason.label for reason in Reason]


def test_the_past_has_no_streams_and_says_what_is_of_now(visitor, subscription, api):
    id_ = subscription("console.was")
    position = api.get("/audit", params={"resource": f"subscription:{id_}"}).json()["items"][0]["position"]
    now, past = (visitor.get("/console/subscriptions", params={"as_of": each}).text for each in (None, position))
    assert "Partitions read" in now
    assert "Partitions read" not in past
    assert "streams, clients, jobs and health are those of now" in past


def test_a_filter_is_set_and_a_wrong_one_refused(visitor, subscription, api):
    id_ = subscription("console.filtered")
    path = f"/console/subscriptions/{id_}"
    visitor.post(f"{path}?tab=definition", {"action": "filter", "filter": "event.number > 1"})
    assert api.get(f"/subscriptions/{id_}").json()["filter"] == "event.number > 1"
    refused = visitor.post(f"{path}?tab=definition", {"action": "filter", "filter": "event.number >"})
    assert refused.status_code == 422
    assert "event.number &gt;</textarea>" in refused.text


def test_a_subscription_is_deleted_by_its_owner_s_name(visitor, subscription, api):
    id_ = subscription("console.gone")
    path = f"/console/subscriptions/{id_}"
    assert visitor.post(path, {"action": "delete", "name": "someone"}).status_code == 422
    assert visitor.post(path, {"action": "delete", "name": "shop"}).status_code == 303
    assert api.get(f"/subscriptions/{id_}").status_code == 404


def test_an_audit_entry_has_its_states_and_its_proof(visitor, event_type, api):
    event_type("console.audited")
    position = api.get("/audit", params={"resource": "event-type:console.audited"}).json()["items"][0]["position"]
    data = visitor.get(f"/console/audit/{position}", params={"format": "json"}).json()
    assert data["entry"]["after"]["name"] == "console.audited"
    assert data["proof"]["hashes"]
    assert visitor.get("/console/audit/999999999").status_code == 200
    assert "There is no such entry" in visitor.get("/console/audit/999999999").text
    assert json.loads(visitor.get("/console/audit", params={"format": "json", "actor": "jane"}).text)["items"] == []
