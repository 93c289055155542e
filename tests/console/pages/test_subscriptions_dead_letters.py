"""Dead letters in the console, without scripts: the list, the preview and the redrive, which the address selects."""

import json
import re
import subprocess
import sys

import pytest

from rioni.client import Client
from rioni.console.pages.subscriptions import STEPS_MAX
from tests.console.dead_letters import letters_of
from tests.console.markup import active
from tests.console.sample import HOSTILE
from tests.support.dead_letters import REASON, dead_letter
from tests.support.waiting import WAIT_S


@pytest.fixture
def letters(broker, request):
    """A subscription of this test, without dead letters."""
    return letters_of(broker, f"console.{request.function.__name__}"[:60].replace("_", "-"))


def shown(visitor, letters, **params):
    return visitor.get(letters.path, params={"tab": "dead letters", "format": "json", **params}).json()


def carried(page):
    """The hidden fields with which the form of a step passes values to the next step."""
    form = page[page.index('<section id="redrive"') :]
    return dict(re.findall(r'<input type="hidden" name="(after_\w+|so_far|steps)" value="([^"]*)">', form))


def redrive(visitor, letters, query="", **form):
    return visitor.post(f"{letters.path}&preview=yes{query}", {"action": "redrive", **form})


def test_without_dead_letters_the_page_says_where_they_come_from(visitor, letters):
    assert "There are no dead letters" in visitor.get(letters.path).text
    assert "No dead letters match" in visitor.get(f"{letters.path}&reason=x").text


def test_an_event_that_failed_is_shown_previewed_and_published_again_once(visitor, letters):
    letters.fail()
    data = shown(visitor, letters)
    (letter,) = data["dead_letters"]["items"]
    assert letter["event"] == {"order": 0, HOSTILE: HOSTILE}
    assert data["dead_letters"]["reasons"] == [{"reason": REASON, "count": 1, "is_link": True}]
    assert "preview" not in data
    counts = {"redriven": 1, "already_redriven": 0, "without_event_type": 0}
    previewed = {**counts, "more": False, "reasons": [{"reason": REASON, "count": 1}]}
    assert shown(visitor, letters, preview="yes")["preview"] == previewed
    assert letters.events() == 1
    page = redrive(visitor, letters).text
    assert "1 published again, 0 had been before, 0 without an event type." in page
    assert ">redriven</span>" in page
    assert letters.events() == 2
    assert "0 published again, 1 had been before, 0 without an event type." in redrive(visitor, letters).text
    assert letters.events() == 2
    assert "1 published again, 0 had been before" in redrive(visitor, letters, "&force=yes").text
    assert letters.events() == 3
    linked = f"start=offset&amp;partition=0&amp;offset={letter['offset']}"
    assert linked in page
    events = visitor.get(
        f"/console/event-types/{letters.event_type}/events",
        params={"start": "offset", "partition": "0", "offset": letter["offset"], "format": "json"},
    ).json()
    assert letter["offset"] in [item["cursor"]["offset"] for item in events["items"]]


def test_the_address_selects_what_is_listed_previewed_and_redriven(visitor, letters):
    letters.write(0, 3)
    letters.write(3, 2, "another")
    letters.write(5, 1, event_type="console.absent")
    for query, offsets, redriven in (
        ({}, [0, 1, 2, 3, 4, 5], 5),
        ({"reason": "another"}, [3, 4], 2),
        ({"event_type": "console.absent"}, [5], 0),
        ({"from_offset": "001-0001-000000000000000004"}, [4, 5], 1),
        ({"reason": "absent"}, [], 0),
    ):
        data = shown(visitor, letters, preview="yes", **query)
        assert sorted(each["event"]["order"] for each in data["dead_letters"]["items"]) == offsets, query
        assert data["preview"]["redriven"] == redriven, query
    nothing = visitor.get(f"{letters.path}&preview=yes&partition=1").text
    assert "there is no partition 1" in nothing
    assert 'name="partition"' in nothing
    page = redrive(visitor, letters, "&reason=another").text
    assert "2 published again, 0 had been before, 0 without an event type." in page
    assert "another" in page
    rest = shown(visitor, letters, preview="yes")["preview"]
    assert (rest["redriven"], rest["already_redriven"], rest["without_event_type"]) == (3, 2, 1)


def test_what_is_not_all_is_not_counted_as_all(visitor, letters):
    letters.write(0, 101)
    page = visitor.get(letters.path).text
    assert "The first 100 of more than 100 dead letters" in page
    assert len(shown(visitor, letters)["dead_letters"]["items"]) == 100
    assert "1 dead letter," in visitor.get(f"{letters.path}&from_offset=001-0001-000000000000000100").text


def test_more_than_a_request_publishes_are_published_in_steps(visitor, letters):
    letters.write(0, 1_100)
    assert "of more than 1,000" in visitor.get(f"{letters.path}&preview=yes").text
    page = redrive(visitor, letters, go_on="yes", steps=str(STEPS_MAX - 1)).text
    assert "1,000 of 1,100 are published again." in " ".join(page.split())
    assert "Publish the next 100 again" in page
    # The last step that follows by itself was made.
    assert "load delay" not in page
    page = redrive(visitor, letters, **carried(page)).text
    assert "100 published again, 0 had been before" in page
    assert "1,100 of 1,100 are published again." in " ".join(page.split())
    assert carried(page) == {"so_far": "1100", "steps": str(STEPS_MAX + 1)}
    assert letters.events() == 1_100


def test_with_force_steps_go_on_where_the_last_one_ended(visitor, letters):
    letters.write(0, 1_001)
    page = redrive(visitor, letters, "&force=yes", go_on="yes").text
    assert "load delay" in page
    page = redrive(visitor, letters, "&force=yes", go_on="yes", **carried(page)).text
    assert "1 published again, 0 had been before" in page
    assert "1,001 of 1,001 are published again." in " ".join(page.split())
    assert "load delay" not in page
    assert letters.events() == 1_001


def test_a_step_that_failed_is_repeated_where_it_began(visitor, letters):
    letters.write(0, 2)
    begin = {"after_partition": "0", "after_offset": "x", "so_far": "7", "steps": "3"}
    failed = redrive(visitor, letters, **begin)
    assert failed.status_code == 422
    assert carried(failed.text) == begin | {"steps": "0"}


def test_only_the_answer_to_a_form_goes_on_by_itself(visitor, letters):
    letters.write(0, 1_001)
    assert "load delay" not in visitor.get(f"{letters.path}&preview=yes&go_on=yes&steps=1&so_far=1").text
    assert "load delay" in redrive(visitor, letters, go_on="yes").text


def test_hostile_reasons_and_events_are_text(visitor, letters):
    letters.write(0, 1, HOSTILE)
    letters.write(1, 1, HOSTILE * 100)
    letters.write(2, 1, "")
    for path in (letters.path, f"{letters.path}&preview=yes"):
        page = visitor.get(path).text
        assert active(page) == []
        assert "&lt;img src=x" in page
    assert [each["is_link"] for each in shown(visitor, letters)["dead_letters"]["reasons"]] == [True, False, False]
    found = shown(visitor, letters, reason=HOSTILE, preview="yes")
    assert len(found["dead_letters"]["items"]) == found["preview"]["redriven"] == 1
    assert active(redrive(visitor, letters).text) == []


def test_a_wrong_filter_is_explained_and_can_be_changed(visitor, letters):
    page = visitor.get(f"{letters.path}&from_offset=x&preview=yes").text
    assert page.count("banner failed") == 2
    assert 'name="from_offset" value="x"' in page
    assert redrive(visitor, letters, "&from_offset=x").status_code == 422


def test_what_was_can_be_looked_at_only(visitor, letters):
    letters.write(0, 1)
    now = visitor.get("/console/audit", params={"format": "json"}).json()["items"][0]["position"]
    page = visitor.get(f"{letters.path}&preview=yes&as_of={now}").text
    assert "Dead letters are shown as they are now." in page
    assert 'value="redrive"' not in page


def test_the_error_of_a_handler_is_what_every_way_shows(visitor, broker, letters):
    with broker.client() as api:
        api.post(f"/event-types/{letters.event_type}/events", json=[{"order": 0}, {"order": 1}]).raise_for_status()
    with Client(broker.url) as client:
        consumer = client.subscription(letters.id)

        def handle(event):
            if event.data["order"] == 0:
                raise ValueError(f"no such customer \u202e{HOSTILE}")
            consumer.stop()

        consumer.run(handle, attempts=1, on_error="dead_letter")
    reason = f"ValueError: no such customer \u202e{HOSTILE}"
    with broker.client() as api:
        (letter,) = api.get(f"/subscriptions/{letters.id}/dead-letters", params={"reason": reason}).json()["items"]
    assert letter["error"] == {"message": REASON, "reason": reason}
    assert shown(visitor, letters, preview="yes", reason=reason)["preview"]["reasons"] == [
        {"reason": reason, "count": 1}
    ]
    page = visitor.get(letters.path).text
    assert "ValueError: no such customer \\u202e&lt;img" in page
    assert active(page) == []
    command = [sys.executable, "-m", "rioni", "dead-letters", "list", letters.id, "--url", broker.url]
    table = subprocess.run(command, capture_output=True, check=True, text=True, timeout=WAIT_S).stdout
    assert "no such customer" in " ".join(table.split())
    assert "\u202e" not in table
    command = [*command, "--json", "--reason", reason]
    listed = subprocess.run(command, capture_output=True, check=True, text=True, timeout=WAIT_S).stdout
    assert json.loads(listed)["error"] == letter["error"]


def test_numbers_of_events_are_shown_with_their_digits(visitor, letters):
    digits = "0.1234567890123456789"
    letters.write(0, 1)
    with letters.broker.client() as api:
        written = json.dumps(dead_letter(letters.id, letters.event_type, 1, {"v": "digits"}))
        body = f"[{written}]".replace('"digits"', digits)
        api.post(
            "/event-types/nakadi.dead.letter.queue/events", content=body, headers={"Content-Type": "application/json"}
        ).raise_for_status()
    assert f"&#34;v&#34;: {digits}\n" in visitor.get(letters.path).text
    found = visitor.get(letters.path, params={"tab": "dead letters", "format": "json"}).json(parse_float=str)
    assert {"v": digits} in [each["event"] for each in found["dead_letters"]["items"]]
