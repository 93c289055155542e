"""Requests that no page makes: they get an answer that says what was wrong, never an error of the console."""

import json
import random
import re
from io import BytesIO
from types import SimpleNamespace
from urllib.parse import urlencode

import falcon
import pytest

from rioni.console.app import PAGES
from rioni.console.differences import LINES_MAX, difference
from rioni.console.pages.event_type import MEMBERS_MAX
from rioni.console.security import FORM_BYTES_MAX, LOGIN_BYTES_MAX, READING_BYTES_MAX, Forms
from rioni.console.sessions import NOTICE_CHARACTERS_MAX
from tests.console.conftest import last_change
from tests.console.sample import ADDRESSES


NAME = "console.requests"
PAGE, EVENTS, EDIT = (f"/event-types/{NAME}{rest}" for rest in ("", "/events", "?tab=edit"))
DEFINED = {"schema": {"type": "json_schema", "schema": "{}"}}
# Names of what is given to templates, and of the arguments of functions that make links.
NAMES = "&".join(f"{name}=x" for name in ("path", "self", "url", "params", "data", "visit", "title", "format"))


@pytest.fixture(scope="module")
def created(broker):
    with broker.client() as api:
        body = {"name": NAME, "owning_application": "shop", "category": "business", "labels": {"schema": "x"}}
        answer = api.post("/event-types", json={**body, **DEFINED, "enrichment_strategies": ["metadata_enrichment"]})
        assert answer.status_code == 201


@pytest.mark.parametrize("path", ADDRESSES)
def test_names_in_the_address_mean_nothing_to_templates(visitor, sample, path):
    address = f"/console{path.format(**sample)}"
    for query in (NAMES, "as_of=", "as_of=&as_of=1", "q=1&q=2"):
        answer = visitor.get(f"{address}{'&' if '?' in address else '?'}{query}")
        assert answer.status_code == 200, query


@pytest.mark.parametrize("path", ADDRESSES)
def test_every_page_can_be_shown_as_of_the_first_entry(visitor, sample, path):
    answer = visitor.get(f"/console{path.format(**sample)}", params={"as_of": "1"})
    assert answer.status_code in (200, 404)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/audit/" + "9" * 3_900, 400),
        ("/audit/%D9%A3", 200),
        ("/event-types/%E2%82%AC", 404),
        ("/event-types/a%0d%0ab", 404),
        ("/event-types/%00", 400),
        ("/event-types?q=%00", 400),
        ("/event-types?offset=" + "9" * 3_000, 200),
        ("/moment?as_of=%0d%0aSet-Cookie:x", 303),
        ("/api/event-types/%E2%82%AC", 404),
        ("/api/event-types/%FF", 404),
        ("/api/" + "'" * 3_000, 414),
        ("/api/event-types?limit=1000000000", 400),
        # Decoded once, not twice.
        (f"/api/event-types/{NAME.replace('.', '%252E')}", 404),
        (f"/api/event-types/{NAME.replace('.', '%2E')}", 200),
    ],
)
def test_hostile_addresses(visitor, created, path, status):
    answer = visitor.get(f"/console{path}")
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (PAGE, {"action": "partitions", "count": "9" * 5_000}),
        (PAGE, {"action": "partitions", "count": "9" * 30}),
        (PAGE, {"action": "partitions", "count": "²"}),
        (PAGE, {"action": "partitions", "count": "-1"}),
        (EDIT, {"action": "apply", "definition": '{"schema": {"schema": "{}"}}'}),
        (EDIT, {"action": "apply", "definition": '{"schema": "{}"}'}),
        (EDIT, {"action": "apply", "definition": "[" * 100_000}),
        (EDIT, {"action": "apply", "definition": json.dumps(DEFINED), "etag": "a\r\nb: \N{EURO SIGN}"}),
        (EVENTS, {"action": "publish", "event": '{"metadata": [1]}'}),
        (EVENTS, {"action": "publish", "event": '{"metadata": "x"}'}),
        (EVENTS, {"action": "publish", "event": '{"a":' * 2_000 + "1" + "}" * 2_000}),
        ("/settings", {"action": "block", "kind": "../features", "name": "x"}),
        ("/settings", {"action": "block", "kind": "CONSUMER_APP", "name": "a\0b"}),
        ("/settings", {"action": "admins", "admins": "a:" + "x" * 200_000}),
        ("/storages", {"action": "add", "id": "x", "storage_type": "kafka", "kafka_configuration": "1"}),
        ("/subscriptions/no-such", {"action": "redrive", "so_far": "9" * 5_000, "steps": "x"}),
    ],
)
def test_hostile_forms_are_refused(visitor, api, created, path, form):
    answer = visitor.post(f"/console{path}", form)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "definition",
    [
        {**DEFINED, "labels": {"schema": "y"}},
        {"schema": {"schema": "{}"}},
        {"schema": {"type": 1, "schema": 5}},
        {**DEFINED, **{f"member-{number}": number for number in range(MEMBERS_MAX)}},
    ],
)
def test_hostile_definitions_have_a_plan_or_a_reason_why_not(visitor, created, definition):
    answer = visitor.post(f"/console{EDIT}", {"action": "plan", "definition": json.dumps(definition)})
    assert answer.status_code == 200
    assert "What would change" in answer.text or "can&#39;t be shown" in answer.text or "can't be shown" in answer.text


def test_a_name_is_refused_that_no_address_can_hold(visitor):
    form = {"action": "block", "kind": "CONSUMER_APP", "name": "x" * 4_000}
    answer = visitor.post("/console/settings", form)
    assert answer.status_code == 414
    assert "The names are too long" in answer.text


def test_the_notice_of_a_long_name_is_cut(visitor):
    form = {"kind": "CONSUMER_APP", "name": "\N{EURO SIGN}" * 300}
    assert visitor.post("/console/settings", {"action": "block", **form}).status_code == 303
    notice = re.search('role="status">(.*?)</p>', visitor.get("/console/settings").text)[1]
    assert notice == "\N{EURO SIGN}" * (NOTICE_CHARACTERS_MAX - 3) + "..."
    visitor.post("/console/settings", {"action": "unblock", **form})


@pytest.mark.parametrize("page", [page for page in PAGES if page.actions], ids=lambda page: page.path)
def test_what_was_can_t_be_changed(visitor, api, sample, page):
    before = last_change(api)
    for action in page.actions:
        answer = visitor.post(f"/console{page.path.format(**sample)}?as_of=1", {"action": action})
        assert answer.status_code == 400
        assert "be changed. Go back to now" in answer.text
    assert last_change(api) == before


def test_texts_of_any_length_are_compared_in_bounded_time():
    lines = [str(number) for number in range(LINES_MAX * 5)]
    changed = lines.copy()
    changed[LINES_MAX * 3] = "x"
    changed[-1] = "y"
    found = difference("\n".join(lines), "\n".join(changed))
    begin = LINES_MAX * 3 - 4 + 1
    assert found[0] == {"sign": "@", "text": f"-{begin},9 +{begin},9"}
    assert {"sign": "+", "text": "x"} in found
    assert {"sign": "+", "text": "y"} not in found
    assert found[-1]["text"].endswith("is not compared.")
    shorter = difference("\n".join(lines), "\n".join(lines[: LINES_MAX * 4]))
    assert {"sign": "-", "text": str(LINES_MAX * 4)} in shorter
    # The worst case of a comparison, which would take minutes.
    random.Random(1).shuffle(changed)
    repeated = [str(number % 20) for number in range(200_000)]
    assert len(difference("\n".join(repeated), "\n".join(changed * 20))) < 3 * LINES_MAX


def form_of(body, *, logged_in=True, forms=None, read=None, client="client"):
    """The members of a form that is sent."""
    req = SimpleNamespace(
        content_length=len(body), env={"wsgi.input": SimpleNamespace(read=read or BytesIO(body).read)}
    )
    return (forms or Forms()).read(req, client, logged_in=logged_in)


def test_a_form_is_read_as_browsers_write_it():
    text = "\N{EURO SIGN} & = + %\r\n"
    assert form_of(b"a=%E2%82%AC+%26+%3D+%2B+%25%0D%0A&b=&c") == {"a": text, "b": "", "c": ""}
    for value in (*map(chr, range(512)), "\\x41", "\\u0041", "\\N{DIGIT ONE}", "\U0001f600"):
        assert form_of(urlencode({"a": value}).encode()) == {"a": value}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"a=\xff", falcon.HTTPBadRequest),
        (b"a=%FF", falcon.HTTPBadRequest),
        (b"a=%E2%82", falcon.HTTPBadRequest),
        (b"a=b&a=b", falcon.HTTPBadRequest),
        (b"a=b&%61", falcon.HTTPBadRequest),
        (b"a=%", falcon.HTTPBadRequest),
        (b"a=%4", falcon.HTTPBadRequest),
        (b"a=%zz", falcon.HTTPBadRequest),
        (b"a=\\x41", falcon.HTTPBadRequest),
        (b"&" * 200, falcon.HTTPBadRequest),
        (b"a" * (LOGIN_BYTES_MAX + 1), falcon.HTTPContentTooLarge),
    ],
)
def test_what_is_no_form_or_too_large_is_refused(body, error):
    with pytest.raises(error):
        form_of(body, logged_in=False)


def test_a_form_that_comes_too_slowly_or_not_whole_is_refused():
    def late(_length):
        raise TimeoutError

    with pytest.raises(falcon.HTTPError, match="408"):
        form_of(b"a=b", read=late)
    with pytest.raises(falcon.HTTPBadRequest):
        form_of(b"a=b", read=BytesIO(b"a").read)


def test_large_forms_are_bounded_together_and_small_ones_are_read():
    forms, seen = Forms(), []

    def read(body, length):
        """While this form is read, another one comes."""
        seen.append(length)
        if len(seen) < READING_BYTES_MAX:
            return form_of(body, forms=forms, read=lambda length: read(body, length))
        return b""

    with pytest.raises(falcon.HTTPServiceUnavailable):
        read(b"a" * FORM_BYTES_MAX, 0)
    # One client may hold half of it: there is as much room for others.
    assert len(seen) == READING_BYTES_MAX // 2 // FORM_BYTES_MAX + 1
    assert form_of(b"a=b", forms=forms) == {"a": "b"}


def test_a_client_that_sends_large_forms_without_end_leaves_room_for_others():
    forms, form = Forms(), b"a=" + b"b" * (FORM_BYTES_MAX - 2)
    refused = []

    def read(_length):
        """While one client's form is read, its next one comes, and at the end one of another client."""
        try:
            form_of(form, forms=forms, read=read)
        except falcon.HTTPServiceUnavailable as ex:
            refused.append(ex)
            assert form_of(form, forms=forms, client="other")["a"]
        return b""

    with pytest.raises(falcon.HTTPBadRequest):
        form_of(form, forms=forms, read=read)
    assert "of this client" in refused[0].description


def test_a_form_without_a_login_is_small(visitor, guest):
    for visit, size, status in (
        (guest, LOGIN_BYTES_MAX, 413),
        (visitor, LOGIN_BYTES_MAX, 403),
        (visitor, FORM_BYTES_MAX, 413),
    ):
        visit.get("/console/login")
        assert visit.http.post("/console/logout", content=b"a" * (size + 1)).status_code == status
    visitor.http.headers.pop("Cookie")
    # Without a session nothing is read at all.
    assert visitor.http.post("/console/logout", content=b"a" * (FORM_BYTES_MAX + 1)).status_code == 403
