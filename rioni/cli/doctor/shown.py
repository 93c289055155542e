"""Hides everything in the findings of `rioni doctor` that is not in the table of facts, or has another form there."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

import rioni
from rioni.cli.doctor.diagnosis import Missing
from rioni.cli.doctor.shown_facts import EACH, FACTS, INTERNAL, LOG_FIELDS, NAME, PATH, TEXT, URL


HIDDEN = "(a text that is not shown)"


class Shown:
    """Replaces everything by `HIDDEN` that is not in the table, or has another form there.

    Args:
        named: the URL and the paths that the user has named, which sentences may contain.
    """

    def __init__(self, named: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._paths: set[str] = set()
        for each in named:
            self.value(each, URL if "://" in each else PATH)

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The facts of all sources, of the same types; what is hidden is a text."""
        # Twice, since a sentence may contain names of facts that come later.
        for _ in range(2):
            found = {name: self._fact(name, each) for name, each in facts.items()}
        return found

    def _fact(self, name: str, fact: Any) -> Any:
        if isinstance(fact, Missing):
            return Missing(self.text(fact.reason), fact.wanted)
        return fact if name in INTERNAL else self.value(fact, FACTS.get(name))

    def value(self, value: Any, rule: Any) -> Any:
        """A fact, reduced by a rule: a form, a mapping by member, or a list with a rule for each item."""
        if isinstance(rule, re.Pattern) or value is None:
            return self._of_form(value, rule)
        if isinstance(value, str) and isinstance(rule, str):
            return self.text(value) if rule == TEXT else "\n".join(map(self._log_line, value.split("\n")))
        if isinstance(value, list | tuple) and isinstance(rule, list):
            rules = rule if len(rule) == len(value) else rule[:1] * len(value)
            return type(value)(map(self.value, value, rules))
        if isinstance(value, Mapping) and isinstance(rule, Mapping):
            return dict(self._member(str(name), each, rule) for name, each in value.items())
        if isinstance(value, msgspec.Struct) and isinstance(rule, Mapping):
            members = {name: self.value(getattr(value, name), rule.get(name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **members)
        return HIDDEN

    def text(self, text: str) -> str:
        """A sentence, with `HIDDEN` instead of each run of words that are not shown."""
        return self._tokens(text, self._is_shown)

    def _of_form(self, value: Any, form: re.Pattern[str]) -> Any:
        if value is None or isinstance(value, bool | int | float | datetime):
            return value
        if isinstance(value, str) and not value.strip():
            return value
        if not isinstance(value, str) or form.fullmatch(value) is None:
            return HIDDEN
        self._known.add(value)
        if form is PATH:
            self._paths.add(value)
        return value

    def _member(self, name: str, value: Any, rule: Mapping[str, Any]) -> tuple[str, Any]:
        if name in rule and name != EACH:
            return name, self.value(value, rule[name])
        if EACH in rule and NAME.fullmatch(name):
            self._known.add(name)
            return name, self.value(value, rule[EACH])
        return HIDDEN, HIDDEN

    def _tokens(self, text: str, is_shown: Callable[[str], bool]) -> str:
        parts = (each if not each or each.isspace() or is_shown(each) else HIDDEN for each in _SPACES.split(text))
        return _HIDDEN_TWICE.sub(HIDDEN, "".join(parts))

    def _is_shown(self, token: str) -> bool:
        core = token.strip(_AROUND)
        if not core or token in self._known or core in self._known or _PLAIN_TOKEN.fullmatch(core):
            return True
        path = next((each for each in self._paths if core.startswith(f"{each}/")), None)
        parts = [core] if path is None else core[len(path) + 1 :].split("/")
        return all(part.lower() in words() or part in self._known for part in parts)

    def _log_line(self, line: str) -> str:
        if found := _SOURCE_LINE.fullmatch(line):
            return f'  File "{found[1]}", line {found[2]}'
        if line.startswith("{"):
            try:
                members = msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.DecodeError, RecursionError):
                return HIDDEN
            line = " ".join(_of_json(members))
        return self._tokens(line, self._is_shown_in_log)

    def _is_shown_in_log(self, token: str) -> bool:
        name, equals, value = token.partition("=")
        if not equals or name not in LOG_FIELDS:
            return self._is_shown(token)
        form = LOG_FIELDS[name]
        return self._is_shown(value) if form == TEXT else form.fullmatch(value.strip(_AROUND)) is not None


def _of_json(members: dict[str, Any]) -> Iterator[str]:
    """The parts of a line of the log in JSON, as in text."""
    yield str(members.get("timestamp", ""))
    yield f"[{members.get('level', '')}] {members.get('message', members.get('event', ''))}"
    if "logger" in members:
        yield f"[{members['logger']}]"
    for name, value in members.items():
        if name in LOG_FIELDS and isinstance(value, str | int | float):
            yield f"{name}={value}"


# --- The words of sentences: those of messages of the program itself, the operating system and HTTP ---

FOLDER = Path(rioni.__file__).parent
WITHOUT = ("testing", "cli/cheats", "console")
"""Folders with examples, which are no messages."""
OTHERS = "Errno SSL certificate_verify_failed self-signed"
"""Words of Python's and OpenSSL's messages."""
_LITERAL = re.compile(r'"""(?:.|\n)*?"""|"((?:[^"\\\n]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z]+")
_SPACES = re.compile(r"(\s+)")
_AROUND = "()[]{}<>'\"`.,:;!?|=-\u2014"
_PLAIN_TOKEN = re.compile(
    r"[-+]?\d{1,3}(?:[.,:]\d{1,3})*(?:%|s|ms|h|d|kB|MB|GB|MiB|GiB)?"  # a short number, or one with separators
    r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:\d\d)?)?"  # a time
    r"|rioni(?:\.[a-z_]+)*"  # a module
    r"|https?://(?:localhost|127\.0\.0\.1)(?::\d{1,5})?"  # this machine
    r"|(?:[a-z_]+\.)*[A-Z][A-Za-z]+(?:Error|Exception|Warning|Timeout|Interrupt)"
)
_HIDDEN_TWICE = re.compile(rf"{re.escape(HIDDEN)}(?:[^\S\n]+{re.escape(HIDDEN)})+")
_SOURCE_LINE = re.compile(r'\s+File "[^"]*?(rioni/[\w/]+\.py|\w+\.py)", line (\d+), in (?:\w+|<\w+>)')


@cache
def words() -> frozenset[str]:
    """All words, in lower case: the letters of each, and with what joins them in a message."""
    texts = [OTHERS, *(os.strerror(number) for number in range(1, 200)), *(each.phrase for each in HTTPStatus)]
    for path in FOLDER.rglob("*.py"):
        if not path.relative_to(FOLDER).as_posix().startswith(WITHOUT):
            texts += _LITERAL.findall(path.read_text(errors="replace"))
    joined = (word.strip(_AROUND).lower() for text in texts for word in text.split())
    letters = {word.lower() for text in texts for word in _WORD.findall(text)}
    return frozenset(letters.union(word for word in joined if word[:1].isalpha()))
