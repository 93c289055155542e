"""Every form of every page: forged ones change nothing, and what is typed comes back as text."""

from urllib.parse import urlencode

import httpx
import pytest

from rioni.console.app import PAGES
from tests.console.conftest import last_change
from tests.console.markup import active, forms
from tests.console.sample import ADDRESSES, HOSTILE


QUERY = (
    *("q", "tab", "version", "against", "start", "time", "offset", "partition", "filter", "event_type", "reader"),
    *("owning_application", "category", "cleanup_policy", "label", "resource", "kind", "actor", "flow_id", "since"),
    *("until", "after", "before", "as_of", "next"),
    *("from_offset", "to_offset", "reason", "preview", "force"),
)
"""Every name that pages know in queries."""
FORGED = {
    "without the secret": ({"csrf": ""}, {}),
    "with another secret": ({"csrf": "x" * 32}, {}),
    "of another site": ({}, {"Sec-Fetch-Site": "cross-site"}),
    "of another origin": ({}, {"Origin": "https://evil.example"}),
}


@pytest.fixture
def found(visitor, streamed):
    """Each form with the address of its page, and one of its actions."""
    return [
        (form.address or f"/console{path}", form, action)
        for path in (each.format(**streamed) for each in ADDRESSES)
        for form in visitor.forms(f"/console{path}")
        for action in form.actions
    ]


def test_each_action_has_a_form(found):
    wanted = {action for page in PAGES for action in page.actions}
    assert {action for _, _, action in found} == wanted


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_form_is_refused_and_changes_nothing(visitor, api, found, forgery):
    fields, headers = FORGED[forgery]
    before = last_change(api)
    for path, form, action in found:
        sent = {**form.fields, "csrf": visitor.csrf, **fields, "action": action}
        answer = visitor.http.post(path, data=sent, headers=headers)
        assert answer.status_code == 403, (path, action)
    assert last_change(api) == before


BAD = {
    "twice": lambda name: [(name, "x"), (name, "x")],
    "twice with other values": lambda name: [(name, "x"), (name, "y")],
    "not UTF-8": lambda name: [(name, b"x\xff")],
}


@pytest.mark.parametrize("way", BAD)
def test_a_form_with_a_field_that_can_not_be_told_is_refused_and_changes_nothing(visitor, api, found, way):
    before = last_change(api)
    for path, form, action in found:
        whole = {**form.fields, "csrf": visitor.csrf, "action": action}
        for name in whole:
            sent = [(each, value) for each, value in whole.items() if each != name] + BAD[way](name)
            headers = {"X-CSRF-Token": visitor.csrf, "Content-Type": "application/x-www-form-urlencoded"}
            answer = visitor.http.post(path, content=urlencode(sent), headers=headers)
            assert answer.status_code == 400, (path, action, name)
    assert last_change(api) == before


def test_a_form_without_a_field_or_of_another_type_is_no_error_of_the_console(visitor, found):
    for path, form, action in found:
        # Not the name of anything, as below.
        whole = {**dict.fromkeys(form.fields, "x?"), "action": action}
        for name in whole:
            answer = visitor.post(path, {each: value for each, value in whole.items() if each != name})
            assert answer.status_code < 500, (path, action, name)
        headers = {"X-CSRF-Token": visitor.csrf}
        for sent in ({"json": whole}, {"files": {"action": (None, action)}}, {"content": b""}):
            assert visitor.http.post(path, headers=headers, **sent).status_code in (400, 403), (path, action)


def test_what_is_typed_comes_back_as_text(visitor, found):
    # Not the name of anything, which would confirm that it is deleted.
    typed = f"x{HOSTILE}"
    for path, form, action in found:
        answer = visitor.post(path, {name: typed for name in form.fields if name != "csrf"} | {"action": action})
        assert answer.status_code < 500, (path, action)
        assert active(answer.text) == [], (path, action)
        assert active(visitor.get(path).text) == [], (path, action)


@pytest.mark.parametrize("path", ADDRESSES)
def test_what_is_in_the_address_comes_back_as_text(visitor, sample, path):
    path = f"/console{path.format(**sample)}"
    assert active(visitor.get(path).text) == []
    for name in QUERY:
        answer = visitor.get(str(httpx.URL(path).copy_merge_params({name: HOSTILE})))
        assert answer.status_code < 500, name
        assert active(answer.text) == [], name


@pytest.mark.parametrize("path", [*ADDRESSES, "/login", "/no-such-page"])
def test_no_page_can_be_framed(visitor, sample, path):
    headers = visitor.get(f"/console{path.format(**sample)}").headers
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_hostile_paths_come_back_as_text(visitor):
    for path in ("/event-types/%3Cimg%20src=x%20onerror=y%3E", "/subscriptions/%3Cscript%3E", "/%3Csvg%20onload=x%3E"):
        assert active(visitor.get(f"/console{path}").text) == []


def test_forms_and_what_runs_are_found():
    page = '<form method="post" action="/a"><textarea name="b">c</textarea><button name="action" value="d"></button>'
    page += '<fieldset disabled aria-describedby="e"><button name="action" value="f"></button></fieldset></form>'
    (form,) = forms(page)
    assert (form.address, form.fields, form.actions, form.disabled) == ("/a", {"b": "c"}, {"d", "f"}, {"f": "e"})
    assert active(f"<p>{HOSTILE}</p>") == ["<img onerror>", "<script>", "<svg onload>"]
