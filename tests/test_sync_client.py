"""The synchronous client is the asynchronous one without `await`."""

import re

from tests.support import sync_client


def test_the_synchronous_client_is_generated_from_the_asynchronous_one():
    modules = sync_client.modules()
    written = {path for path in sync_client.TARGET.glob("*.py") if path.name not in sync_client.BY_HAND}
    assert written == set(modules)
    stale = [path.name for path, text in modules.items() if path.read_text() != text]
    assert not stale, "run python -m tests.support.sync_client"


def test_what_is_written_by_hand_has_the_same_names():
    texts = [(folder / "concurrency.py").read_text() for folder in (sync_client.SOURCE, sync_client.TARGET)]
    names = [set(re.findall(r"^(?:async )?def ([a-z]\w*)", text, re.MULTILINE)) for text in texts]
    assert names[0] == names[1]
