"""The words that the program itself writes: of its own texts, and of those of the operating system and of HTTP."""

import os
import re
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from pathlib import Path

import rioni
from rioni.config.settings import SETTINGS


FOLDER = Path(rioni.__file__).parent
OWN = ("cli/doctor", "client/models")
"""Folders whose code counts as well, since its names are those of members in a bundle."""
WITHOUT = ("testing", "cli/cheats", "console")
"""Folders with examples, which are no messages."""
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z]+(?:[-_.'][A-Za-z]+)*")


@cache
def words() -> frozenset[str]:
    """All words, in lower case: of letters, and of words that are joined by `-`, `_`, `.` or `'`."""
    found: set[str] = set()
    for name, text in _sources():
        for part in (text,) if name.startswith(OWN) else _LITERAL.findall(text):
            found.update(map(str.lower, _WORD.findall(part)))
    for number in range(1, 200):
        found.update(map(str.lower, _WORD.findall(os.strerror(number))))
    for each in HTTPStatus:
        found.update(map(str.lower, _WORD.findall(each.phrase)))
    return frozenset(found | SETTINGS.keys())


@cache
def tokens() -> frozenset[str]:
    """What stands between spaces in the doctor's own texts, such as `LimitNOFILE=65536`."""
    return frozenset(
        token.strip("()[]'\"`.,:;!?")
        for name, text in _sources()
        if name.startswith(OWN[0])
        for literal in _LITERAL.findall(text)
        for token in literal.split()
    )


def _sources() -> Iterator[tuple[str, str]]:
    """The source files of the package by name; what can't be read has no words."""
    for path in sorted(FOLDER.rglob("*.py")):
        name = path.relative_to(FOLDER).as_posix()
        if not name.startswith(WITHOUT):
            try:
                yield name, path.read_text(errors="replace")
            except OSError:
                continue
