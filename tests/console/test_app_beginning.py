"""An empty broker: every page can be seen, and the commands that pages show work, in their order."""

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from rioni.console.app import PAGES
from tests.console.conftest import Visitor
from tests.console.markup import forms
from tests.support.server import running_server
from tests.support.waiting import WAIT_S


OF_THE_BROKER = [page for page in PAGES if "{" not in page.path]
"""Pages that need nothing that was created."""
LEADING = ("/", "/event-types", "/subscriptions")
"""Pages whose commands a beginner follows."""
_HOST = ("rioni backup", "rioni archive", "rioni rebuild", "rioni cheat")
"""Commands of the host, and of a data lake."""


@pytest.fixture
def empty(tmp_path):
    with running_server(tmp_path / "rioni", "--workers", "1") as running:
        yield running


def commands(page, way):
    """The lines for a shell that a page shows, of one way: `curl` or `rioni`."""
    blocks = re.findall(r'<pre class="copyable"><code>(.*?)</code></pre>', page, re.DOTALL)
    lines = [line for block in blocks for line in unescape(block).splitlines()]
    return [line for line in lines if way in line.split()[:4] and not line.startswith(_HOST)]


def run(line, url):
    """Run a line as a user would, and return its error; curl also fails if the API refuses."""
    environment = {**os.environ, "RIONI_URL": url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    line = line.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)
    done = subprocess.run(
        ["/bin/sh", "-c", line], env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    return f"{line}: {done.stdout}{done.stderr}" if done.returncode else ""


@pytest.mark.slow
def test_the_commands_of_an_empty_broker_work_and_pages_and_actions_do_not_fail(empty):
    with Visitor(empty.url) as visitor, empty.client() as api:
        for page in OF_THE_BROKER:
            answer = visitor.get(f"/console{page.path}")
            assert answer.status_code == 200, page.path
            assert "can't be shown" not in answer.text, page.path
            for form in forms(answer.text):
                # Each feature would be switched on, and forbid what follows.
                for action in form.actions - {"switch"}:
                    # The page names missing fields; nothing fails for another reason than the input.
                    done = visitor.post(form.address or f"/console{page.path}", {**form.fields, "action": action})
                    assert done.status_code in (200, 303, 400, 422), (page.path, action)
        for way in ("curl", "rioni"):
            for path in LEADING:
                assert api.get("/event-types").json() == []
                lines = commands(visitor.get(f"/console{path}").text, way)
                assert lines, path
                assert [found for line in lines if (found := run(line, empty.url))] == []
                for each in api.get("/subscriptions").json()["items"]:
                    api.delete(f"/subscriptions/{each['id']}").raise_for_status()
                api.delete("/event-types/order.created").raise_for_status()


@pytest.mark.parametrize("category", ["undefined", "business", "data"])
def test_the_commands_of_an_event_type_without_events_work(visitor, broker, event_type, category):
    schema = {
        "required": ["id", "state", "placed_at", "lines"],
        "properties": {
            "id": {"type": "integer", "minimum": 5},
            "state": {"enum": ["open", "done"]},
            "placed_at": {"type": "string", "format": "date-time"},
            "lines": {"type": "object", "required": ["a"], "properties": {"a": {"type": ["number", "null"]}}},
        },
    }
    enrichment = [] if category == "undefined" else ["metadata_enrichment"]
    name = event_type(
        f"console.begun.{category}",
        category=category,
        enrichment_strategies=enrichment,
        schema={"type": "json_schema", "schema": json.dumps(schema)},
    )
    for way in ("curl", "rioni"):
        for path in (f"/event-types/{name}/events", f"/event-types/{name}"):
            if lines := commands(visitor.get(f"/console{path}").text, way):
                assert [found for line in lines if (found := run(line, broker.url))] == []
