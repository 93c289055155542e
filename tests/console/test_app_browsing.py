"""The console in a real browser: the live view, changes by mouse and by keyboard alone, refusals, login."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.console.conftest import READER
from tests.console.sample import HOSTILE
from tests.support.browser import COUNT_MOVES, needs_browser


pytestmark = [needs_browser, pytest.mark.slow]


@pytest.fixture
def page(browser, broker):
    """A page of a new browser; errors that the browser reports fail the test, refusals apart."""
    context = browser.new_context(base_url=broker.url)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    yield page
    context.close()
    assert not errors


def test_the_live_view_shows_events_as_they_come(page, api, event_type):
    schema = {"type": "json_schema", "schema": json.dumps({"properties": {HOSTILE: {}}})}
    event_type("browsing.live", category="undefined", enrichment_strategies=[], schema=schema)
    event = {HOSTILE: HOSTILE, "metadata": {"received_at": HOSTILE, "occurred_at": [HOSTILE]}}
    page.goto("/console/event-types/browsing.live")
    # A link brings the script of the page as well.
    page.locator(".tabs a", has_text="Events").click()
    page.wait_for_url("**/events")
    page.get_by_role("button", name="Live").click()
    # The stream begins a moment after the click.
    page.get_by_text("Live: waiting for events").wait_for()
    rows = page.locator("#events tbody tr")
    for number in range(100):
        api.post("/event-types/browsing.live/events", json=[{"number": number, **event}] * 10)
        if rows.count() >= 10:
            break
        page.wait_for_timeout(50)
    rows.first.wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused after").wait_for()
    rows.first.locator("summary").click()
    rows.first.locator("pre").wait_for()
    assert page.locator("#events").locator("img, script, svg").count() == 0
    assert page.evaluate("window.ran") is None


def test_events_beyond_what_people_can_read_are_counted_also_after_a_pause(page, api, event_type):
    event_type("browsing.flood", category="undefined", enrichment_strategies=[])
    path, rows = "/event-types/browsing.flood/events", page.locator("#events tbody tr")
    page.goto(f"/console{path}")
    page.get_by_role("button", name="Live").click()
    page.get_by_text("Live: waiting for events").wait_for()
    # The stream begins a moment after the click.
    for first in range(100):
        api.post(path, json=[{"number": first}])
        if rows.count():
            break
        page.wait_for_timeout(50)
    begin = int(re.search(r"\d+", rows.last.locator("summary").inner_text())[0])
    published = first - begin + 1
    for _ in range(10):
        api.post(path, json=[{"number": -1}] * 1_000)
    published += 10_000
    expect_counted(page, published)
    expect(rows).to_have_count(200)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#tail-state")).to_contain_text("Paused after")
    api.post(path, json=[{"number": -2}] * 700)
    page.get_by_role("button", name="Live").click()
    expect_counted(page, published + 700)
    expect(rows.first.locator("summary")).to_have_text('{"number":-2}')


def expect_counted(page, published):
    """Wait until `published` events were shown or left out, and some were left out."""
    page.wait_for_function(
        """published => {
          const counts = document.getElementById("tail-state").textContent.replaceAll(",", "")
            .match(/^Live: (\\d+) events.*; (\\d+) more were left out/);
          return counts && Number(counts[1]) + Number(counts[2]) === published;
        }""",
        arg=published,
    )


def test_an_event_is_published_by_keyboard(page, event_type):
    event_type("browsing.keys", category="undefined", enrichment_strategies=[])
    page.goto("/console")
    page.keyboard.press("/")
    page.keyboard.type("browsing.keys")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=browsing.keys")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/event-types/browsing.keys")
    page.locator(".tabs a", has_text="Events").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/events")
    page.locator("textarea[name=event]").focus()
    page.keyboard.type('{"number": 1}')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("The event is published").wait_for()
    assert page.locator("#events tbody tr").count() == 1


def test_a_refusal_keeps_what_was_typed(page, event_type):
    event_type("browsing.refused")
    page.goto("/console/event-types/browsing.refused?tab=edit")
    page.locator("textarea[name=definition]").fill("{")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_text("unexpected end of data").wait_for()
    assert page.locator("textarea[name=definition]").input_value() == "{"


def test_a_change_that_nobody_answers_is_told_and_keeps_what_was_typed(page, event_type):
    event_type("browsing.unreachable")
    page.goto("/console/event-types/browsing.unreachable/events")
    page.locator("[name=event]").fill('{"typed": 1}')
    page.context.set_offline(True)
    for _ in range(2):
        page.locator("[value=publish]").click()
        expect(page.get_by_role("alert")).to_contain_text("Whether the change was made is not known")
    assert page.locator("[name=event]").input_value() == '{"typed": 1}'
    page.get_by_role("link", name="Subscriptions", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("The broker can't be reached. Try again.")
    page.context.set_offline(False)
    page.get_by_role("link", name="Subscriptions", exact=True).click()
    page.get_by_role("heading", name="Subscriptions", exact=True).wait_for()
    assert page.get_by_role("alert").count() == 0


def test_a_plan_is_shown_and_applied_by_mouse(page, api, event_type):
    event_type("browsing.planned")
    page.goto("/console/event-types/browsing.planned?tab=edit")
    area = page.locator("textarea[name=definition]")
    area.fill(json.dumps(json.loads(area.input_value()) | {"labels": {"team": "mice"}}))
    assert page.get_by_role("button", name="Apply").is_disabled()
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("heading", name="labels").wait_for()
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("browsing.planned is changed").wait_for()
    assert api.get("/event-types/browsing.planned").json()["labels"] == {"team": "mice"}


def test_a_filter_says_why_an_event_matches(page, api, event_type):
    event_type("browsing.filtered", category="undefined", enrichment_strategies=[])
    api.post("/event-types/browsing.filtered/events", json=[{"a": 1}, {"a": 2}])
    page.goto("/console/event-types/browsing.filtered/events")
    page.get_by_label("Filter (CEL)").fill("event.a > 1 && has(event.a)")
    page.keyboard.press("Enter")
    page.get_by_text("1 of these 2 events match").wait_for()
    page.locator("tr.faded summary").click()
    assert page.locator("tr.faded .status.failed").inner_text() == "false"


def test_a_user_logs_in_and_sees_only_what_may_be_seen(browser, guarded):
    context = browser.new_context(base_url=guarded.url)
    page = context.new_page()
    page.goto("/console/audit")
    page.wait_for_url("**/console/login?next=*")
    page.get_by_label("Token").fill(READER)
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("You may not see this page").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/console/login")
    assert context.cookies()[0]["httpOnly"]
    context.close()


def test_a_page_of_another_site_can_t_frame_or_drive_the_console(browser, broker):
    """A page at another port is another origin, and one at `localhost` another site than `127.0.0.1`."""
    context = browser.new_context()
    page = context.new_page()
    other = broker.url.replace("127.0.0.1", "localhost")
    page.goto(f"{broker.url}/health")
    answer = page.evaluate(
        """async url => {
          const form = new URLSearchParams({action: "block", kind: "CONSUMER_APP", name: "evil"});
          const request = {method: "POST", body: form, mode: "no-cors", credentials: "include"};
          const sent = await fetch(url + "/console/settings", request).then(answer => answer.type, () => "failed");
          const frame = document.createElement("iframe");
          frame.src = url + "/console";
          document.body.append(frame);
          await new Promise(done => frame.addEventListener("load", done));
          let text = null;
          try { text = frame.contentDocument.body.innerText } catch { text = null }
          return [sent, text];
        }""",
        other,
    )
    assert answer[1] in (None, "")
    with broker.client() as api:
        assert "evil" not in api.get("/settings/blacklist").json()["consumers"]["apps"]
    context.close()


def test_a_link_of_another_site_leads_to_the_page_and_keeps_the_session(browser, guarded):
    url = guarded.url
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.goto("/console/login?next=/console/account")
    page.get_by_label("Token").fill(READER)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/console/account")
    before = context.cookies()
    page.goto(url.replace("127.0.0.1", "localhost") + "/console/login")
    page.evaluate("url => { location = url }", f"{url}/console/subscriptions?owning_application=shop")
    page.get_by_role("heading", name="Subscriptions", exact=True).wait_for()
    assert page.url == f"{url}/console/subscriptions?owning_application=shop"
    ours = [cookie for cookie in context.cookies() if cookie["domain"] == "127.0.0.1"]
    assert ours == before
    context.close()


def test_a_slider_leads_to_the_whole_console_as_of_an_entry(page, event_type):
    event_type("console.first")
    event_type("console.second")
    page.goto("/console/audit")
    page.get_by_label("The whole console as it was after entry").focus()
    page.keyboard.press("Home")
    output = page.locator(".moment output")
    expect(output).to_contain_text("1 of ")
    expect(output).to_contain_text("UTC, ")
    page.keyboard.press("ArrowRight")
    expect(output).to_contain_text("2 of ")
    page.get_by_role("button", name="Go there").click()
    expect(page).to_have_url(re.compile(r"/console\?as_of=2$"))
    expect(page.locator(".banner.past[role=status]")).to_contain_text("as it was after entry 2")
    page.goto("/console/audit?as_of=2")
    expect(output).to_contain_text("2 of ")
    page.get_by_label("The whole console as it was after entry").focus()
    page.keyboard.press("End")
    expect(output).to_have_text("now")
    page.get_by_role("button", name="Go there").click()
    expect(page).to_have_url(re.compile(r"/console$"))
    expect(page.locator(".banner.past[role=status]")).to_have_count(0)


def test_times_are_shown_in_both_zones(browser, broker, event_type):
    event_type("browsing.times")
    context = browser.new_context(base_url=broker.url, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto("/console/event-types/browsing.times")
    expect(page.locator("time.both").first).to_contain_text(re.compile(r"UTC \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+05:30"))
    page.goto("/console/event-types?q=browsing.times")
    expect(page.locator("td time")).to_contain_text("UTC")
    page.get_by_role("button", name="UTC times: change the zone").click()
    expect(page.locator("td time")).to_contain_text("+05:30")
    page.reload()
    expect(page.locator("td time")).to_contain_text("+05:30")
    expect(page.locator("td time")).to_have_attribute("title", re.compile("UTC$"))
    context.close()


@pytest.mark.parametrize(("zone", "content"), [("Asia/Kolkata", '"("'), ("UTC", "none")])
def test_a_second_zone_is_in_brackets_where_there_is_one(browser, broker, event_type, zone, content):
    context = browser.new_context(base_url=broker.url, timezone_id=zone)
    page = context.new_page()
    page.goto(f"/console/event-types/{event_type(f'browsing.{zone.lower()[:3]}')}?tab=schema")
    page.locator("time[data-shown]").first.wait_for()
    assert page.locator("p .local").evaluate("each => getComputedStyle(each, '::before').content") == content
    context.close()


def test_filling_in_times_moves_nothing(browser, broker, event_type):
    event_type("browsing.still")
    context = browser.new_context(base_url=broker.url, timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.add_init_script('localStorage.setItem("zone", "local");' + COUNT_MOVES)
    for path in ("/event-types?q=browsing.still", "/event-types/browsing.still", "/audit"):
        page.goto(f"/console{path}")
        page.locator("time[data-shown]").first.wait_for()
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("window.moved") < 0.01, path
    context.close()


def test_pages_that_come_bit_by_bit_move_nothing(browser, broker, api, event_type):
    if browser.browser_type.name != "chromium":
        pytest.skip("slows the network down by the protocol of Chromium")
    name = event_type("browsing.slow")
    wanted = {"owning_application": "shop", "event_types": [name]}
    subscription = api.post("/subscriptions", json=wanted).json()["id"]
    context = browser.new_context(base_url=broker.url)
    page = context.new_page()
    page.add_init_script(COUNT_MOVES)
    # Not the lists, whose columns get wider with their rows.
    paths = ("", f"/event-types/{name}", f"/event-types/{name}?tab=schema", f"/subscriptions/{subscription}")
    moved = {}
    for path in (*paths, "/storages", "/settings", "/account"):
        # Other elements are there before.
        page.goto(f"/console{path}")
        network = context.new_cdp_session(page)
        network.send("Network.enable")
        slow = {"offline": False, "latency": 0, "downloadThroughput": 12_000, "uploadThroughput": 100_000}
        network.send("Network.emulateNetworkConditions", slow)
        page.goto(f"/console{path}")
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        moved[path] = page.evaluate("window.moved")
        network.detach()
    context.close()
    assert {path: much for path, much in moved.items() if much >= 0.01} == {}
