"""Generated files are current: pages and tables of the documentation, the synchronous client, the script for SQLite."""

import re

from dev import sync_client
from dev.__main__ import stale


def test_generated_files_are_current():
    found = [path.name for path in stale()]
    assert not found, "run: python -m dev"


def test_the_modules_of_both_clients_that_are_written_by_hand_have_the_same_names():
    texts = [(folder / "concurrency.py").read_text() for folder in (sync_client.SOURCE, sync_client.TARGET)]
    names = [set(re.findall(r"^(?:async )?def ([a-z]\w*)", text, re.MULTILINE)) for text in texts]
    assert names[0] == names[1]
