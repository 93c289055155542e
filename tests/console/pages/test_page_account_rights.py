"""Pages show which actions the user may not do: each action of each page, for users with different rights."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from rioni.console.app import PAGES
from tests.console.conftest import ADMIN, READER, ROLES, Visitor, guarded_settings, last_change
from tests.console.markup import forms
from tests.console.sample import ADDRESSES
from tests.console.sample import sample as filled
from tests.support.browser import needs_browser
from tests.support.server import running_server
from tests.support.tokens import bearer


def _users(*names):
    return [{"data_type": "user", "value": name} for name in names]


SECTION = {"admins": _users("owner"), "readers": _users("consumer"), "writers": _users("publisher")}
SUBSCRIPTION_SECTION = {"admins": _users("owner"), "readers": _users("consumer")}
ADMINS = {
    "admins": _users("administrator"),
    "readers": _users("viewer", "operator"),
    "writers": _users("writer", "operator"),
}

EVENT_TYPE, EVENTS, SUBSCRIPTION = "/event-types/{name}", "/event-types/{name}/events", "/subscriptions/{id}"
STORAGES, SETTINGS = "/storages", "/settings"
OF_EVENT_TYPE = {(EVENT_TYPE, "apply"), (EVENT_TYPE, "delete")}
OF_SUBSCRIPTION = {(SUBSCRIPTION, action) for action in ("reset", "delete", "filter")}
OF_BROKER = {
    (EVENT_TYPE, "switch"),
    (EVENT_TYPE, "partitions"),
    *((STORAGES, action) for action in ("add", "default", "delete")),
    *((SETTINGS, action) for action in ("switch", "block", "unblock")),
}
CLOSE, PUBLISH, NAMES = (SUBSCRIPTION, "close"), (EVENTS, "publish"), (SETTINGS, "admins")
REDRIVE = SUBSCRIPTION, "redrive"
FREE = {("/create-event-type", "create"), (EVENT_TYPE, "plan"), (SUBSCRIPTION, "preview"), (SUBSCRIPTION, "clone")}
"""Actions that everybody may do."""
MAY = {
    READER: set(),
    "consumer": {CLOSE},
    "publisher": {PUBLISH},
    "owner": OF_EVENT_TYPE | OF_SUBSCRIPTION,
    "viewer": {CLOSE},
    "writer": {PUBLISH} | OF_EVENT_TYPE | OF_BROKER,
    "administrator": {NAMES} | OF_SUBSCRIPTION,
    "operator": {CLOSE, PUBLISH} | OF_EVENT_TYPE | OF_BROKER,
    ADMIN: {CLOSE, PUBLISH, NAMES, REDRIVE} | OF_EVENT_TYPE | OF_SUBSCRIPTION | OF_BROKER,
}
"""By token."""
VALUES = {
    (EVENT_TYPE, "delete"): {"name": "{name}"},
    (EVENT_TYPE, "switch"): {"storage_id": "default"},
    (EVENT_TYPE, "partitions"): {"count": "2"},
    PUBLISH: {"event": "{{}}"},
    (SUBSCRIPTION, "reset"): {"to": "begin"},
    (SUBSCRIPTION, "delete"): {"name": "rights"},
    (SUBSCRIPTION, "filter"): {"filter": "event.n == 1"},
    CLOSE: {"stream_id": "of-nobody"},
    (STORAGES, "add"): {"id": "rights", "storage_type": "{storage_type}", "kafka_configuration": "{kafka}"},
    (STORAGES, "default"): {"id": "default"},
    (STORAGES, "delete"): {"id": "rights", "name": "rights"},
    (SETTINGS, "switch"): {"feature": "repartitioning", "enabled": "true"},
    (SETTINGS, "block"): {"kind": "CONSUMER_APP", "name": "rights"},
    (SETTINGS, "unblock"): {"kind": "CONSUMER_APP", "name": "rights"},
    NAMES: {kind: "\n".join(f"user:{each['value']}" for each in users) for kind, users in ADMINS.items()},
}
"""Values typed for actions that shall work; the others are those of the page. Braces as in `ADDRESSES`."""
SHOWN_FIRST = {"apply": "plan", "reset": "preview"}
"""By action, the action whose result must be seen before it is enabled."""
ANSWERS = {CLOSE: 404, REDRIVE: 200}
"""There is no such stream; counts are shown at once. All else leads to another page, 303."""
CONTROLLED = [
    (page.path, address)
    for page in PAGES
    for address in ADDRESSES
    if page.actions and address.partition("?")[0] == page.path
]
"""Each page with actions, with each of its tabs."""


@pytest.fixture(scope="module")
def names(guarded):
    """Something of each kind, whose sections name the roles."""
    with guarded.client(headers=bearer(ADMIN)) as api:
        api.post("/settings/admins", json=ADMINS).raise_for_status()
        storage = api.get("/storages/default").json()
    kafka = json.dumps(storage["kafka_configuration"]) if "kafka_configuration" in storage else ""
    sections = ({"authorization": SECTION}, {"authorization": SUBSCRIPTION_SECTION})
    with filled(guarded, token=ADMIN, sections=sections) as names:
        yield names | {"storage_type": storage["storage_type"], "kafka": kafka}


@pytest.fixture(scope="module")
def shown(guarded, names):
    """The pages as each user sees them: the address, the form, its action, and the text of the page."""
    shown = {}
    for token in MAY:
        with Visitor(guarded.url) as visitor:
            visitor.log_in(token)
            shown[token] = []
            for path, address in CONTROLLED:
                text = visitor.get(f"/console{address.format(**names)}").text
                found = [(form, action) for form in forms(text) for action in form.actions]
                shown[token] += [(path, address, form, action, text) for form, action in found]
    return shown


def test_each_action_has_a_row():
    rows = MAY[ADMIN] | FREE
    assert rows == {(page.path, action) for page in PAGES for action in page.actions}
    assert set(MAY) == {ADMIN, READER, *ROLES}


def test_what_users_may_not_do_is_disabled_with_the_reason(shown):
    for token, controls in shown.items():
        for path, address, form, action, text in controls:
            reason = form.disabled.get(action, "")
            lacks = (path, action) not in MAY[token] | FREE
            assert bool(reason) == lacks, (token, address, action)
            if lacks:
                assert re.search(rf'<span class="needs" id="{reason}">[\w ]*[Nn]eeds [A-Z]+ of t', text), (
                    address,
                    action,
                )
                assert text.count(f' id="{reason}"') == 1, (token, address, action)
    assert {(path, action) for path, _, _, action, _ in shown[ADMIN]} == MAY[ADMIN] | FREE


def test_what_is_disabled_is_refused_where_it_is_sent_nevertheless(guarded, guest, names, shown):
    with guarded.client(headers=bearer(ADMIN)) as api:
        before = last_change(api)
        for token, allowed in MAY.items():
            guest.log_in(token)
            csrf = guest.csrf
            refused = {(path, action): (address, form) for path, address, form, action, _ in shown[token]}
            for (path, action), (address, form) in refused.items():
                if (path, action) in allowed | FREE:
                    continue
                typed = {name: text.format(**names) for name, text in VALUES.get((path, action), {}).items()}
                if (path, action) == (SUBSCRIPTION, "delete"):
                    typed["name"] = api.get(f"/subscriptions/{names['id']}").json()["owning_application"]
                sent = {**form.fields, **typed, "csrf": csrf, "action": action}
                answer = guest.post(f"/console{address.format(**names)}", sent, csrf=csrf)
                assert answer.status_code == 403, (token, path, action)
                assert "Forbidden" in answer.text, (token, path, action)
        assert last_change(api) == before


@pytest.mark.parametrize("token", MAY)
def test_what_is_enabled_works(guarded, guest, names, shown, token):
    fresh = _fresh(guarded, token)
    guest.log_in(token)
    wanted = {(path, action): address for path, address, _, action, _ in shown[token] if (path, action) in MAY[token]}
    # Deletions come last.
    for (path, action), address in sorted(wanted.items(), key=lambda each: each[0][1] == "delete"):
        here = f"/console{address.format(**names | fresh)}"
        fields = next((form.fields for form in guest.forms(here) if action in form.actions), {})
        typed = {name: text.format(**names | fresh) for name, text in VALUES.get((path, action), {}).items()}
        if action == "apply":
            typed["definition"] = json.dumps(json.loads(fields["definition"]) | {"labels": {"changed": "yes"}})
        if action in SHOWN_FIRST:
            plan = guest.post(here, {**fields, **typed, "action": SHOWN_FIRST[action]})
            (fields,) = [
                form.fields for form in forms(plan.text) if action in form.actions and action not in form.disabled
            ]
        answer = guest.post(here, {**fields, **typed, "action": action})
        assert answer.status_code == ANSWERS.get((path, action), 303), (path, action, answer.text)
    assert wanted.keys() == MAY[token]


def _fresh(guarded, token):
    """An event type and a subscription that nobody else uses; what braces in addresses stand for."""
    name = f"rights.{token}"
    with guarded.client(headers=bearer(ADMIN)) as api:
        # One of them has no subscription, so that it can be deleted.
        for each in (name, f"{name}.subscribed"):
            body = {"name": each, "owning_application": "rights", "category": "undefined", "authorization": SECTION}
            schema = {"type": "json_schema", "schema": "{}"}
            api.post("/event-types", json=body | {"schema": schema}).raise_for_status()
        wanted = {
            "owning_application": "rights",
            "consumer_group": token,
            "event_types": [f"{name}.subscribed"],
            "read_from": "end",
            "authorization": SUBSCRIPTION_SECTION,
        }
        made = api.post("/subscriptions", json=wanted)
        made.raise_for_status()
    return {"name": name, "id": made.json()["id"]}


WRITING_OFF = [
    ("POST", "/settings/features", {"feature": "disable_db_write_operations", "enabled": enabled})
    for enabled in (True, False)
]


@pytest.mark.parametrize(
    ("on", "off", "token", "address", "expected"),
    [
        (
            ("PUT", "/settings/blacklist/PRODUCER_APP/publisher", None),
            ("DELETE", "/settings/blacklist/PRODUCER_APP/publisher", None),
            "publisher",
            EVENTS,
            {"publish": "WRITE of this event type, and no entry on the blacklist that forbids it"},
        ),
        (
            *WRITING_OFF,
            "writer",
            EVENT_TYPE,
            {
                "apply": "ADMIN of this event type, while writing is not switched off",
                "delete": "ADMIN of this event type, while writing is not switched off",
                "switch": "WRITE of the broker, while writing is not switched off",
                "partitions": "WRITE of the broker, while writing is not switched off",
            },
        ),
        (*WRITING_OFF, "consumer", "/create-event-type", {"create": "writing to be switched on"}),
        (
            *WRITING_OFF,
            "consumer",
            SUBSCRIPTION,
            {
                "reset": "ADMIN of this subscription",
                "delete": "ADMIN of this subscription, while writing is not switched off",
                "filter": "ADMIN of this subscription, while writing is not switched off",
                "clone": "writing to be switched on",
                "redrive": "REDRIVE of this subscription, while writing is not switched off",
            },
        ),
        (
            *WRITING_OFF,
            "writer",
            SETTINGS,
            # It can be switched on again.
            {"admins": "ADMIN of the broker, while writing is not switched off"},
        ),
    ],
)
@pytest.mark.one_server
def test_what_is_forbidden_for_now_is_shown_as_such(guarded, guest, names, on, off, token, address, expected):
    guest.log_in(token)
    with guarded.client(headers=bearer(ADMIN)) as api:
        try:
            api.request(on[0], on[1], json=on[2]).raise_for_status()
            found = guest.get(f"/console{address.format(**names)}", params={"format": "json"}).json()
        finally:
            api.request(off[0], off[1], json=off[2]).raise_for_status()
    assert found["lacks"] == expected


def test_an_auditor_is_told_not_to_create_event_types(tmp_path):
    environment = guarded_settings(tmp_path) | {"RIONI_AUTH_MODE": "basic", "RIONI_AUDIT_READERS": "user:viewer"}
    with running_server(tmp_path / "data", "--workers", "1", environment=environment) as running:
        for token, lacks in (("viewer", {"create": "WRITE of the broker"}), ("owner", {}), (ADMIN, {})):
            with Visitor(running.url) as visitor:
                visitor.log_in(token)
                page = "/console/create-event-type"
                assert visitor.get(page, params={"format": "json"}).json()["lacks"] == lacks
                (form,) = [each for each in visitor.forms(page) if "create" in each.actions]
                assert form.disabled.keys() == lacks.keys()
                sent = form.fields | {"name": f"of.{token}", "owning_application": "a", "category": "undefined"}
                sent |= {"compatibility_mode": "none", "partition_strategy": "random", "action": "create"}
                assert visitor.post(page, sent).status_code == (403 if lacks else 303)


def test_json_says_what_rights_are_missing(guest, names):
    guest.log_in("owner")
    found = guest.get(f"/console/event-types/{names['name']}", params={"format": "json"}).json()
    assert found["lacks"] == {"switch": "WRITE of the broker", "partitions": "WRITE of the broker"}
    past = {"format": "json", "as_of": names["position"]}
    assert guest.get(f"/console/event-types/{names['name']}", params=past).json()["lacks"] == {}


def test_what_may_be_changed_is_offered_where_it_may_not_be_seen(guest, names):
    guest.log_in("writer")
    for address, unseen in ((STORAGES, 1), (SETTINGS, 3)):
        text = guest.get(f"/console{address}").text
        assert text.count("You may not see the ") == unseen
        assert len(re.findall("Admin privileges (?:are )?required", text)) == unseen
    enabled = {action for form in guest.forms("/console/settings") for action in form.actions - form.disabled.keys()}
    assert enabled == {"switch", "block", "unblock"}
    assert "problem" in guest.get("/console/storages", params={"format": "json"}).json()
    past = guest.get("/console/storages", params={"as_of": names["position"]}).text
    assert 'method="post"' not in past[past.index("<main") :]


def test_events_that_may_not_be_read_are_not_offered(guest, names):
    guest.log_in("publisher")
    text = guest.get(f"/console/event-types/{names['name']}/events").text
    assert 'disabled aria-describedby="unseen"' in text
    assert 'id="unseen"' in text
    assert "Access on READ" in text
    guest.log_in("consumer")
    assert "unseen" not in guest.get(f"/console/event-types/{names['name']}/events").text


@pytest.mark.one_server
def test_only_pages_with_actions_ask_for_rights_and_only_once(guarded, guest, names):
    guest.log_in("viewer")
    with guarded.client(headers=bearer(ADMIN)) as api:
        for address in ADDRESSES:
            before = _asked(api)
            guest.get(f"/console{address.format(**names)}")
            allowed = {0, 1} if address in {each for _, each in CONTROLLED} | {"/account"} else {0}
            assert _asked(api) - before in allowed, address


@pytest.mark.one_server
def test_without_authentication_nothing_lacks_but_what_is_switched_off(visitor, api, event_type):
    name = event_type("console.without-rights")
    before = _asked(api)
    assert "<button" in visitor.get(f"/console/event-types/{name}?tab=edit").text
    assert _asked(api) - before == 1

    def lacks(page=""):
        return visitor.get(f"/console/event-types/{name}{page}", params={"format": "json"}).json()["lacks"]

    assert lacks() == {}
    (method, path, body), (_, _, undone) = WRITING_OFF
    try:
        api.request(method, path, json=body).raise_for_status()
        assert lacks()["apply"] == "ADMIN of this event type, while writing is not switched off"
    finally:
        api.request(method, path, json=undone).raise_for_status()
    entry = f"/settings/blacklist/PRODUCER_ET/{name}"
    try:
        api.put(entry).raise_for_status()
        assert lacks("/events")["publish"] == "WRITE of this event type, and no entry on the blacklist that forbids it"
    finally:
        api.delete(entry).raise_for_status()
    assert lacks("/events") == {}


def _asked(api):
    """How often rights were asked for."""
    counters = api.get("/metrics", headers={"Accept": "application/json"}).json()["counters"]
    return sum(value["count"] for name, value in counters.items() if 'route="/rights"' in name)


def test_users_see_their_rights_to_the_broker(guest, visitor, names):
    guest.log_in("viewer")
    assert 'href="/console/account"' in guest.get("/console").text
    found = guest.get("/console/account", params={"format": "json"}).json()
    assert (found["rights"]["subject"], found["rights"]["broker"]) == ("viewer", ["READ", "HISTORY"])
    assert guest.get("/console/account").text.count(">yes<") == 2
    assert visitor.get("/console/account").text.count(">yes<") == 4
    assert 'href="/console/account"' not in visitor.get("/console").text


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "addresses"),
    [
        (
            "viewer",
            (f"{EVENT_TYPE}?tab=edit", f"{SUBSCRIPTION}?tab=definition", EVENTS, STORAGES, SETTINGS, "/account"),
        ),
        ("writer", (STORAGES, SETTINGS)),
    ],
)
def test_pages_without_some_rights_are_accessible_in_both_themes(browser, guarded, names, token, addresses):
    context = browser.new_context(base_url=guarded.url, reduced_motion="reduce")
    page = context.new_page()
    page.goto("/console/login")
    page.locator('[name="token"]').fill(token)
    page.locator("main button, form button").first.click()
    page.wait_for_url("**/console")
    for address in addresses:
        page.goto(f"/console{address.format(**names)}")
        assert page.locator("button:disabled, .banner.denied").count() or address == "/account"
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
    context.close()
