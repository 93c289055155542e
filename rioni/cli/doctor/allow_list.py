"""The facts that may be shown as they are, by the name of the member, and the words that the program itself writes."""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType

import rioni
from rioni.config.settings import SETTINGS, Config


# The words in the program's own texts, and in those of the operating system and of HTTP.

FOLDER = Path(rioni.__file__).parent
OWN = ("cli/doctor", "wire")
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
    """The words between spaces in the doctor's own texts, such as `LimitNOFILE=65536`."""
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


# --- Facts that may be shown: by the name of the member, if they have the expected form ---

_NAME = re.compile(r"[\w.*()-]{1,255}")
_NUMBERS = r"v?\d{1,9}(?:\.(?:\d{1,9}|\*))*(?:(?:a|b|rc)\d{1,4})?(?:\.(?:post|dev)\d{1,4})?"
_VERSION = re.compile(_NUMBERS)
_BOUND = rf"(?:===?|[<>!~]=|[<>]) ?{_NUMBERS}"
_REQUIREMENT = re.compile(rf"[\w.-]{{1,100}}(?:\[[\w,-]{{1,100}}\])? ?(?:{_BOUND}(?:, ?{_BOUND})*)?")
_PATH = re.compile(r"[\w./+~-]{1,4096}")
_URL = re.compile(r"https?://(?:[\w.-]+|\[[\da-fA-F:]+\])(?::\d{1,5})?(?:/[\w./-]*)?")
_HOST = r"(?:[\w.-]+|\[?[\da-fA-F:.]+\]?)(?::\d{1,5})?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[\w./-]*)?")
_CHECKPOINT = re.compile(r"[\w./:-]+\n\d+\n[A-Za-z0-9+/=]+\n\n(?:\u2014 [\w./:-]+ [A-Za-z0-9+/=]+\n)+")

FORMS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        **dict.fromkeys(
            [
                "name",
                "names",
                "owner",
                "group",
                "id",
                "partition",
                "event_type",
                "event_types",
                "apps",
                "feature",
                "data_type",
                "value",
                "kind",
                "storage_type",
                "stores",
                "unknown",
                "foreign",
                "options",
                "command",
                "setting",
                "host",
                "drivers",
                "package",
                "package_name",
                "worker",
            ],
            _NAME,
        ),
        **dict.fromkeys(["client", "broker", "rioni", "python", "sqlite", "installed", "version"], _VERSION),
        **dict.fromkeys(["path", "mount_point", "file", "data", "origin"], _PATH),
        **dict.fromkeys(["address", "bootstrap_servers"], _HOSTS),
        "requirement": _REQUIREMENT,
        "url": _URL,
        "checkpoint": _CHECKPOINT,
    }
)
"""The form of texts by the name of their member; of a text of another form only known words are shown."""
NAMED: Mapping[str, re.Pattern[str]] = MappingProxyType({"packages": _VERSION, "wal_bytes": _NAME})
"""Members that are objects with names of packages or files; the form of their values, if these are texts."""
SETTING_VALUES = "values"
"""The member with the settings: value and source of each."""
LABELS = frozenset(
    [
        "api",
        "application",
        "client",
        "code",
        "event_type",
        "le",
        "method",
        "node",
        "policy",
        "pool",
        "quantile",
        "reason",
        "route",
        "slo_bucket",
        "status",
        "storage",
        "subscription",
        "worker",
    ]
)
"""Labels of metrics with names of the registry and of this broker."""
_LABEL = re.compile(r"[\w.:/<>{}+()*-]{0,255}")
LOG_FIELDS = frozenset(
    [
        *(
            "message",
            "event",
            "level",
            "logger",
            "reason",
            "error",
            "exception",
            "outcome",
            "version",
            "before",
            "after",
        ),
        *("host", "port", "pid", "worker", "workers", "node", "file", "kafka", "topic", "timeline", "event_type"),
        *("event_types", "partition", "partitions", "stream", "streams", "subscription", "connections", "position"),
        *("method", "status", "status_code", "response_time_ms", "request_length", "response_length", "error_id"),
        *("attempt", "attempts", "delay_s", "seconds", "count", "events", "authenticated"),
    ]
)
"""Members of a line of the log that are kept; of their texts only known words are shown."""


def is_name(text: str) -> bool:
    """Whether a text has the form of a name."""
    return _NAME.fullmatch(text) is not None


def has_form(name: str, text: str) -> bool:
    """Whether a text under this name is shown as it is."""
    form = FORMS.get(name)
    return form is not None and form.fullmatch(text) is not None


def setting_is_shown(name: str, text: str) -> bool:
    """Whether the value of a setting, as text, is shown: it is no secret, and has the form of such a value."""
    setting = SETTINGS.get(name)
    if setting is None or setting.secret:
        return False
    if text == setting.show(getattr(Config(), name)) or setting.kind in {bool, int}:
        return True
    forms = (_NAME, _HOSTS, _URL) if setting.kind is str else (_PATH,)
    return any(form.fullmatch(text) for form in forms)


def label_is_shown(name: str, text: str) -> bool:
    """Whether the value of a label of a metric is shown."""
    return name in LABELS and _LABEL.fullmatch(text) is not None
