"""The slider in time: the log entry at its position, and the pages that it leads to."""

import re

import pytest


@pytest.fixture
def entries(api, event_type):
    """The newest entries of the log, newest first."""
    for number in range(3):
        event_type(f"moment.{number}.{api.get('/audit').headers['log-position']}")
    return api.get("/audit", params={"limit": 3}).json()["items"]


def slider(page):
    """The position at which the slider of a page stands, and its end."""
    found = re.search(r'<input type="range" name="as_of" min="1" max="(\d+)" value="(\d+)"', page)
    return int(found[2]), int(found[1])


def test_the_slider_stands_at_the_entry_that_the_console_shows(visitor, entries):
    then, newest = entries[1], entries[0]["position"]
    for moment in (then["position"], then["recorded_at"]):
        place, end = slider(visitor.get("/console/audit", params={"as_of": moment}).text)
        shown = visitor.get("/console/audit", params={"as_of": moment, "format": "json"}).json()
        # Entries of the same millisecond are one moment.
        assert then["recorded_at"] == recorded_at(entries, place)
        assert place == shown["moment"]
        assert end >= newest


def recorded_at(entries, position):
    return next(each["recorded_at"] for each in entries if each["position"] == position)


def test_the_end_of_the_slider_is_now(visitor, entries):
    page = visitor.get("/console/audit").text
    place, newest = slider(page)
    assert place == newest >= entries[0]["position"]
    assert "<output>now</output>" in page
    for moment, target in ((newest, "/console"), (newest - 1, f"/console?as_of={newest - 1}")):
        answer = visitor.get("/console/moment", params={"newest": newest, "as_of": moment})
        assert answer.headers["location"] == target


def test_pages_of_the_audit_trail_keep_the_moment(visitor, entries):
    moment = entries[-1]["position"]
    page = visitor.get("/console/audit", params={"as_of": moment, "after": entries[0]["position"]}).text
    newer = re.search(r'rel="prev" href="([^"]+)"', page)[1]
    assert f"as_of={moment}" in newer
    assert slider(visitor.get(newer.replace("&amp;", "&")).text)[0] == moment


def test_a_moment_that_the_log_does_not_reach_is_refused(visitor):
    answer = visitor.get("/console/audit", params={"as_of": "2999-01-01T00:00:00Z"})
    assert answer.status_code == 422
    assert "in the future" in answer.text


def test_a_filter_that_is_refused_stays_to_be_corrected(visitor):
    page = visitor.get("/console/audit", params={"kind": "event-type.unheard-of"}).text
    assert "event-type.unheard-of&#39; is neither a topic" in page
    assert 'name="kind" value="event-type.unheard-of"' in page
    assert "problem" in visitor.get("/console/audit", params={"kind": "unheard-of", "format": "json"}).json()


def test_what_did_not_exist_before_has_no_line_of_its_own(visitor, entries):
    created = next(each for each in entries if each["kind"] == "timeline.opened")
    lines = visitor.get(f"/console/audit/{created['position']}", params={"format": "json"}).json()["difference"]
    assert {each["sign"] for each in lines} == {"@", "+"}
