"""The pages about the client: their code works, in order, against a broker."""

import re
from pathlib import Path

import pytest

from rioni.client import Client


DOCS = Path(__file__).parents[3] / "docs/client"
EVENT_TYPES = "order.*"
"""The pages use names that begin so."""


@pytest.fixture
def clean_broker(broker):
    yield broker
    with Client(broker.url) as client:
        for event_type in client.event_types.list(name=EVENT_TYPES):
            for subscription in client.subscriptions.list(event_types=[event_type.name]):
                client.subscriptions.delete(subscription.id)
            client.event_types.delete(event_type.name)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_the_code_of_a_page_works(page, clean_broker, monkeypatch, tmp_path):
    """Blocks of Python share their names, as in a file; lines below `# not run` are only compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIONI_URL", clean_broker.url)
    text = page.read_text()
    blocks = [
        (found.start(), found[1]) for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]
    assert blocks
    names = {"__name__": "page"}
    for start, block in blocks:
        first_line = text.count("\n", 0, start) + 1
        code = "\n" * first_line + block.replace("http://localhost:8080", clean_broker.url)
        compiled = compile(code, str(page), "exec")
        if not block.startswith("# not run"):
            exec(compiled, names)
