"""Each action of each page in a real browser: by mouse, by keyboard alone, and with scripts switched off."""

import json

import pytest

from rioni.console.app import PAGES
from tests.console.conftest import streams_of
from tests.console.dead_letters import letters_of
from tests.console.test_pages_keyboard import tab_to
from tests.support.browser import needs_browser
from tests.support.server import open_stream
from tests.support.waiting import wait_until


pytestmark = [needs_browser, pytest.mark.slow]

KEYS, MOUSE, PLAIN = "keys", "mouse", "plain"
EVENT_TYPE, EVENTS, SUBSCRIPTION = "/event-types/{name}", "/event-types/{name}/events", "/subscriptions/{id}"
NEW_EVENT_TYPE, STORAGES, SETTINGS = "/create-event-type", "/storages", "/settings"
DONE, PLANNED = ".banner.done", "h2:has-text('What would change')"


class User:
    """A person who makes changes at pages, in one way; remembers which."""

    def __init__(self, page, way):
        self._page, self._way, self.made = page, way, set()

    def goes(self, path, query="", **names):
        """To a page; names stand for the braces of its path."""
        self._page.goto(f"/console{path.format(**names)}{query}")

    def makes(self, path, action, of="*", shown=DONE, **typed):
        """Fill in a form of the page that is open, and press a button of it; `of` tells it from others like it."""
        self.made.add((path, action))
        button = f"[name=action][value={action}]"
        has = f":has({button}):has({of})"
        form = f"form{has}"
        if self._page.locator(f"details {form}").count():
            self._press(f"details{has} > summary")
        for name, text in typed.items():
            self._fill(f"{form} [name={name}]", text)
        self._press(f"{form} {button}")
        self._page.locator(shown).wait_for()

    def _press(self, selector):
        if self._way == KEYS:
            tab_to(self._page, selector)
            self._page.keyboard.press("Enter")
        else:
            self._page.locator(selector).click()

    def _fill(self, selector, text):
        if self._way == KEYS:
            tab_to(self._page, selector)
        else:
            self._page.locator(selector).click()
        self._page.keyboard.press("Control+a")
        self._page.keyboard.insert_text(text)


@pytest.fixture(params=[KEYS, MOUSE, PLAIN])
def user(request, browser, broker):
    """A user with a new browser."""
    context = browser.new_context(
        base_url=broker.url, reduced_motion="reduce", java_script_enabled=request.param != PLAIN
    )
    yield User(context.new_page(), request.param)
    context.close()


def test_each_action_is_made(user, broker, api, event_type, request):
    way = request.node.callspec.params["user"]
    _of_event_types(user, api, event_type(f"actions.{way}", category="undefined", enrichment_strategies=[]))
    _of_subscriptions(user, broker, api, letters_of(broker, f"actions.letters.{way}"))
    _of_storages(user, api, f"actions-{way}")
    _of_settings(user, api, f"actions.{way}")
    assert user.made == {(page.path, action) for page in PAGES for action in page.actions}


def _of_event_types(user, api, name):
    user.goes(NEW_EVENT_TYPE)
    user.makes(NEW_EVENT_TYPE, "create", name=f"{name}.created", owning_application="mice")
    assert api.get(f"/event-types/{name}.created").json()["owning_application"] == "mice"
    user.goes(EVENT_TYPE, "?tab=partitions", name=name)
    user.makes(EVENT_TYPE, "partitions", count="3")
    assert len(api.get(f"/event-types/{name}/partitions").json()) == 3
    user.goes(EVENT_TYPE, "?tab=timelines", name=name)
    user.makes(EVENT_TYPE, "switch")
    assert len(api.get(f"/event-types/{name}/timelines").json()) == 2
    user.goes(EVENTS, name=name)
    user.makes(EVENTS, "publish", event="{}")
    definition = api.get(f"/event-types/{name}").json() | {"labels": {"team": "mice"}}
    user.goes(EVENT_TYPE, "?tab=edit", name=name)
    user.makes(EVENT_TYPE, "plan", shown=PLANNED, definition=json.dumps(definition))
    user.makes(EVENT_TYPE, "apply")
    assert api.get(f"/event-types/{name}").json()["labels"] == {"team": "mice"}
    user.goes(EVENT_TYPE, "?tab=edit", name=name)
    user.makes(EVENT_TYPE, "delete", name=name)
    assert api.get(f"/event-types/{name}").status_code == 404


def _of_subscriptions(user, broker, api, letters):
    path = f"/subscriptions/{letters.id}"
    letters.write(0, 2)
    user.goes(SUBSCRIPTION, "?tab=dead+letters&preview=yes", id=letters.id)
    user.makes(SUBSCRIPTION, "redrive", shown="#redrive .banner.done")
    assert letters.events() == 2
    with broker.client() as other, open_stream(other, f"{path}/events"):
        wait_until(lambda: streams_of(api, path))
        user.goes(SUBSCRIPTION, id=letters.id)
        user.makes(SUBSCRIPTION, "close")
        assert not streams_of(api, path)
    user.goes(SUBSCRIPTION, "?tab=reset", id=letters.id)
    user.makes(SUBSCRIPTION, "preview", shown=".banner.past")
    user.makes(SUBSCRIPTION, "reset")
    user.goes(SUBSCRIPTION, "?tab=definition", id=letters.id)
    user.makes(SUBSCRIPTION, "filter", filter="event.a == 1")
    user.goes(SUBSCRIPTION, "?tab=definition", id=letters.id)
    user.makes(SUBSCRIPTION, "clone", consumer_group="another")
    clones = api.get("/subscriptions", params={"event_type": letters.event_type}).json()["items"]
    (clone,) = [each for each in clones if each["consumer_group"] == "another"]
    assert clone["filter"] == "event.a == 1"
    user.goes(SUBSCRIPTION, "?tab=definition", id=letters.id)
    user.makes(SUBSCRIPTION, "delete", name=letters.event_type)
    assert api.get(path).status_code == 404


def _of_storages(user, api, storage):
    before = _default_storage(api)
    kafka = before.get("kafka_configuration")
    user.goes(STORAGES)
    user.makes(STORAGES, "add", id=storage, **({"kafka_configuration": json.dumps(kafka)} if kafka else {}))
    user.goes(STORAGES)
    user.makes(STORAGES, "default", f"[value={storage}]")
    assert _default_storage(api)["id"] == storage
    api.put(f"/storages/default/{before['id']}").raise_for_status()
    user.goes(STORAGES)
    user.makes(STORAGES, "delete", f"[value={storage}]", name=storage)
    assert storage not in {each["id"] for each in api.get("/storages").json()}


def _default_storage(api):
    return next(each for each in api.get("/storages").json() if each["default"])


def _of_settings(user, api, name):
    user.goes(SETTINGS)
    user.makes(SETTINGS, "switch", "[value=kpi_collection]")
    assert {"feature": "kpi_collection", "enabled": True} in api.get("/settings/features").json()["items"]
    api.post("/settings/features", json={"feature": "kpi_collection", "enabled": False}).raise_for_status()
    user.goes(SETTINGS)
    user.makes(SETTINGS, "block", name=name)
    user.goes(SETTINGS)
    user.makes(SETTINGS, "unblock", f"[value='{name}']")
    assert name not in str(api.get("/settings/blacklist").json())
    user.goes(SETTINGS)
    user.makes(SETTINGS, "admins", readers="user:jane")
    assert "jane" in str(api.get("/settings/admins").json()["readers"])
