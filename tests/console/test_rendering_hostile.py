"""Whatever the API would let a text be, pages show it as text: the fields of each page are found, not listed."""

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from jinja2 import UndefinedError

from rioni.console.api import ApiProblem
from rioni.console.app import PAGES
from rioni.console.pages.page import Visit
from tests.console.markup import active
from tests.console.sample import ADDRESSES, HOSTILE
from tests.console.shown import rendered
from tests.console.test_security_forms import QUERY


OWN = frozenset(("tab", "shown_facets", "lists", "kinds"))
"""Fields that come from the console itself, and say which parts of a page there are."""

MORE = ("/event-types/{name}/events?filter=event.text+==+'x'", "/subscriptions/{id}?tab=dead+letters&preview=yes")
"""Addresses of parts of pages that are shown on request only."""
MISSHAPEN = (LookupError, TypeError, UndefinedError)
"""The errors of templates that get a text instead of an object."""


def nodes(data: Any, field: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Each value of JSON: the field that it is in, its container, and its key there; items of lists are one field."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        place = (*field, key if isinstance(data, dict) else "[]")
        if place[0] in OWN:
            continue
        yield place, data, key
        if isinstance(value, dict | list):
            yield from nodes(value, place)


def fields(data: Any, kind: type) -> list[tuple[str, ...]]:
    """The fields with values of a type."""
    return [*dict.fromkeys(field for field, container, key in nodes(data) if isinstance(container[key], kind))]


def with_hostile(data: Any, wanted: tuple[str, ...]) -> Any:
    """The data with hostile texts in one field; an object has a hostile name for one of its values more."""
    changed = copy.deepcopy(data)
    for field, container, key in [*nodes(changed)]:
        value = container[key]
        if field == wanted and isinstance(value, dict) and value:
            value[HOSTILE] = next(iter(value.values()))
        elif field == wanted and isinstance(value, str | None):
            container[key] = HOSTILE
    return changed


@pytest.fixture(params=[*ADDRESSES, *MORE])
def shown(request, visitor, sample):
    """A page with each of its tabs, and its data."""
    address = request.param
    data = visitor.get(f"/console{address.format(**sample)}", params={"format": "json"}).json()
    return next(page for page in PAGES if page.path == address.partition("?")[0]), data


def test_each_text_that_a_page_shows_is_text(shown):
    page, data = shown
    path = dict.fromkeys(("name", "id", "position"), "1")
    visit = Visit(api=None, path=path, params=dict.fromkeys(QUERY, HOSTILE), form={"a": HOSTILE})
    refused = ApiProblem(422, {"title": HOSTILE, "detail": HOSTILE})
    past = dataclasses.replace(visit, as_of=HOSTILE)
    assert active(rendered(page, past, data)) == []
    assert fields(data, str)
    for field in fields(data, str | dict):
        text = rendered(page, visit, with_hostile(data, field), notice=HOSTILE, refused=refused)
        assert active(text) == [], field
    for field in fields(data, type(None)):
        # Some of them are objects if they are there.
        with contextlib.suppress(*MISSHAPEN):
            assert active(rendered(page, visit, with_hostile(data, field))) == [], field
    for name in data.keys() - OWN:
        with contextlib.suppress(*MISSHAPEN):
            unseen = data | {name: {"problem": {"status": 403, "title": HOSTILE, "detail": HOSTILE}}}
            assert active(rendered(page, visit, unseen)) == [], name


def test_fields_are_found():
    data = {"a": [{"b": "c"}, {"b": None}], "tab": "x"}
    assert fields(data, str) == [("a", "[]", "b")]
    assert with_hostile(data, ("a", "[]", "b")) == {"a": [{"b": HOSTILE}, {"b": HOSTILE}], "tab": "x"}
    assert with_hostile(data, ("a", "[]"))["a"][0] == {"b": "c", HOSTILE: "c"}
