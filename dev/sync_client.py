"""Generates the synchronous client from the asynchronous one."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


ROOT = Path(__file__).parents[1]
SOURCE, TARGET = ROOT / "rioni/client/_async", ROOT / "rioni/client/_sync"
BY_HAND = frozenset(("concurrency.py", "connection.py"))
"""Modules that differ between tasks and threads."""

NAMES: Mapping[str, str] = {
    "AsyncClient": "Client",
    "AsyncProducer": "Producer",
    "AsyncConsumer": "Consumer",
    "AsyncDelivery": "Delivery",
    "AsyncIterator": "Iterator",
    "AsyncIterable": "Iterable",
    "AsyncGenerator": "Generator",
    "asynccontextmanager": "contextmanager",
    "AsyncExitStack": "ExitStack",
    "push_async_callback": "callback",
    "_async": "_sync",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "AsyncHTTPTransport": "HTTPTransport",
    "AsyncBaseTransport": "BaseTransport",
    "AsyncByteStream": "SyncByteStream",
    "handle_async_request": "handle_request",
    "aclose": "close",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "aiter_text": "iter_text",
    "aiter_raw": "iter_raw",
    "anext": "next",
    "aiter": "iter",
}
_WORD = re.compile("|".join(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])" for name in sorted(NAMES, key=len, reverse=True)))
_KEYWORDS = re.compile(r"\b(?:async (?=def|with|for)|await )")


def synchronous(text: str) -> str:
    """The source of a module of the synchronous client."""
    return _WORD.sub(lambda found: NAMES[found[0]], _KEYWORDS.sub("", text))


def modules() -> dict[Path, str]:
    """All generated modules: path and text."""
    sources = sorted(path for path in SOURCE.glob("*.py") if path.name not in BY_HAND)
    return {TARGET / path.name: _formatted(path.name, synchronous(path.read_text())) for path in sources}


def _formatted(name: str, text: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "--quiet"]
    place = ["--stdin-filename", str(TARGET / name), "-"]
    for arguments in (["check", "--select", "I", "--fix"], ["format"]):
        done = subprocess.run(
            [*ruff, *arguments, *place], input=text, capture_output=True, text=True, check=False, cwd=ROOT
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        text = done.stdout
    return text


def written() -> Iterator[Path]:
    """The modules of the synchronous client that are not written by hand."""
    return (path for path in TARGET.glob("*.py") if path.name not in BY_HAND)
