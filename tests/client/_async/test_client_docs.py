"""The pages about the client: their code works, in order, against a broker."""

import re
import shlex
import subprocess
import sys
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
    """Blocks of Python share their names, as in a file; those of `sh` are run if they are commands of `rioni`.

    A block that begins with `# not run` is only compiled, one that begins with `# the beginning of FILE` compared.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RIONI_URL", clean_broker.url)
    text = page.read_text()
    names = {"__name__": "page"}
    for block in re.finditer(r"^```(python|sh)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        language, code = block[1], block[2].replace("http://localhost:8080", clean_broker.url)
        if language == "sh":
            _run_commands(code)
        elif found := re.match(r"# the beginning of (\S+)\n", code):
            assert Path(found[1]).read_text().startswith(code[found.end() :])
        else:
            first_line = text.count("\n", 0, block.start()) + 1
            compiled = compile("\n" * first_line + code, str(page), "exec")
            if not code.startswith("# not run"):
                exec(compiled, names)
    assert "Client" in names


def _run_commands(code):
    for line in code.splitlines():
        program, *arguments = shlex.split(line)
        if program == "rioni":
            subprocess.run([sys.executable, "-m", "rioni", *arguments], check=True)
