"""Every wait has a deadline, and modules of the server use threads only for a stated reason.

These are the rules of `docs/decisions/0017-native-threads-and-gevent.md`, where source code shows them.
A wait without a deadline has a comment with the reason why it ends: `# waits: ...`. An import of threads has one too:
`# threads: ...`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]

WAITS = {"result", "get", "join", "wait", "acquire"}
"""Methods that wait for ever when they are called without arguments."""

THREADS = {"_thread", "threading", "queue", "multiprocessing", "concurrent"}

UNPATCHED = ("cli", "client", "lake", "operations", "spark", "testing", "tools")
"""Packages that run in separate processes. Only `rioni serve` is patched for gevent."""


def _waits(tree: ast.AST) -> Iterator[ast.expr]:
    """The calls in a module that may wait for ever."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        timeouts = [*node.args, *(each.value for each in node.keywords if each.arg == "timeout")]
        endless = not (node.args or node.keywords) or any(
            isinstance(each, ast.Constant) and each.value is None for each in timeouts
        )
        # A dictionary may be called with None for a default.
        of_dictionary = node.func.attr == "get" and len(node.args) > 1
        if node.func.attr in WAITS and endless and not of_dictionary:
            yield node
        if node.func.attr == "flock" and not {"LOCK_NB", "LOCK_UN"} & {
            each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
        }:
            yield node


def _imports_of_threads(tree: ast.AST) -> Iterator[ast.stmt]:
    """The imports of the means to start threads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        if THREADS & {name.partition(".")[0] for name in names}:
            yield node


def _differences(path: Path) -> Iterator[str]:
    """The lines of a module whose comments differ from what its waits and imports need."""
    source = path.read_text()
    lines, tree = source.splitlines(), ast.parse(source)
    patched = path.relative_to(ROOT / "rioni").parts[0] not in UNPATCHED
    for tag, nodes in (("waits", _waits(tree)), ("threads", _imports_of_threads(tree) if patched else ())):
        needed = {node.end_lineno for node in nodes}
        found = {number for number, line in enumerate(lines, 1) if f"  # {tag}: " in line}
        yield from (f"{path.relative_to(ROOT)}:{number}: {tag}" for number in needed ^ found)


def test_every_wait_has_a_deadline_or_a_reason_and_every_use_of_threads_a_reason():
    """Give a wait a timeout or a reason; use a pool of rioni/installation/pools.py instead of threads."""
    assert [line for path in sorted(ROOT.glob("rioni/**/*.py")) for line in _differences(path)] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("future.result()", True),
        ("future.result(timeout=None)", True),
        ("event.wait(None)", True),
        ("lock.acquire()", True),
        ("self._thread.join()", True),
        ("queue.get()", True),
        ("fcntl.flock(fd, fcntl.LOCK_EX)", True),
        ("fcntl.flock(fd, fcntl.LOCK_SH)", True),
        ("future.result(5)", False),
        ("event.wait(timeout=left_s)", False),
        ("lock.acquire(blocking=False)", False),
        ("mapping.get(key)", False),
        ("mapping.get(key, None)", False),
        ("', '.join(names)", False),
        ("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", False),
        ("fcntl.flock(fd, fcntl.LOCK_UN)", False),
    ],
)
def test_waits_without_a_deadline_are_recognised(source, found):
    assert bool([*_waits(ast.parse(f"def function():\n    {source}"))]) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import threading", True),
        ("import os, threading as t", True),
        ("from threading import Lock", True),
        ("from concurrent.futures import ThreadPoolExecutor", True),
        ("def function():\n    import queue", True),
        ("import kazoo.handlers.threading", False),
        ("from rioni.storage.threads import Places", False),
    ],
)
def test_uses_of_threads_are_recognised(source, found):
    assert bool([*_imports_of_threads(ast.parse(source))]) == found
