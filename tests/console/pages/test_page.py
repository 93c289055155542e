"""Slow work for a page runs where it blocks nobody else."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rioni.console.pages import audit, event_type
from rioni.console.pages.page import Visit


class FakeApi:
    """Answers with what the paths of pages below ask for."""

    def get(self, path, **_params):
        if path == "/audit":
            return {"items": [{"position": 7, "before": {"a": 1}, "after": {"a": 2}}]}
        return {
            "items": [{"version": version, "schema": "{}", "type": "json_schema"} for version in ("2.0.0", "1.0.0")]
        }

    def attempt(self, _path, **_params):
        return None

    def send(self, *_arguments, **_more):
        return self

    def json(self):
        return {"compatible": True}


EVENT_TYPE = {"name": "a", "audience": "x", "schema": {"type": "json_schema", "schema": "{}"}}
EDITED = json.dumps(EVENT_TYPE | {"audience": "y"})
PAGES: dict[str, tuple[Callable[[Visit], Any], dict[str, Any]]] = {
    "versions of a schema": (lambda visit: event_type._schema(visit, EVENT_TYPE), {"params": {"against": "1.0.0"}}),
    "the plan of an edit": (lambda visit: event_type._plan(visit, EVENT_TYPE, EDITED), {}),
    "an entry of the audit trail": (audit._entry, {"path": {"position": "7"}}),
}


@pytest.mark.parametrize("page", PAGES)
def test_texts_are_compared_in_the_pool(page, monkeypatch):
    in_pool, compared = [False], []

    def compute(function, *arguments):
        in_pool[0] = True
        try:
            return function(*arguments)
        finally:
            in_pool[0] = False

    def difference(*_texts):
        compared.append(in_pool[0])
        return []

    for module in (event_type, audit):
        monkeypatch.setattr(module, "difference", difference)
    load, about = PAGES[page]
    load(Visit(api=FakeApi(), compute=compute, **({"path": {}, "params": {}} | about)))
    assert compared == [True]
