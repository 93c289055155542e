"""Compares output of commands with files in `tests/cli/snapshots`; `UPDATE_SNAPSHOTS=1` writes them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path


FOLDER = Path(__file__).parents[1] / "cli" / "snapshots"
VARYING: Mapping[str, str] = {
    r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "UUID",
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)": "TIME",
    r"http://127\.0\.0\.1:\d+": "URL",
    r"127\.0\.0\.1:\d+": "ADDRESS",
    r'"etag":"[^,]*"': '"etag":"ETAG"',
    r'"consumer_lag_seconds":\d+': '"consumer_lag_seconds":N',
    r'"flow_id":"[^"]*"': '"flow_id":"FLOW"',
    r'"worker":"[^"]*"': '"worker":"WORKER"',
    r"done \d+ s ago": "done N s ago",
    r"\d+ threads? busy": "N threads busy",
    r"rioni-client/[\w.]+ Python/[\d.]+": "CLIENT",
    r"[\w.+-]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{40,}={0,2}": "KEY",
}
"""Patterns for texts that are different at each run, and the words that replace them."""


def compare(name: str, output: str, **varying: str) -> None:
    """Fail if the output is not what the file holds; arguments as for `differences`."""
    assert not differences(name, output, **varying)


def differences(name: str, output: str, **varying: str) -> list[str]:
    """Say what to do if the output is not what the file holds, after replacing what varies.

    Args:
        name: of the file, without its ending.
        output: of the command.
        varying: further texts of this run, by the words that stand for them.
    """
    for word, text in varying.items():
        output = output.replace(text, word.upper())
    for pattern, word in VARYING.items():
        output = re.sub(pattern, word, output)
    path = FOLDER / f"{name}.jsonl"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(output)
    expected = path.read_text() if path.exists() else "(there is no such file)"
    if output == expected:
        return []
    return [f"{path.name} has\n{expected}\nbut there is\n{output}\nUPDATE_SNAPSHOTS=1 writes it, if that is meant."]
