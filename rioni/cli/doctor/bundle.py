"""Packs what was found into one file for those who help: without events, of bounded size, only what is no secret."""

import io
import os
import re
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from rioni.cli.doctor.allow_list import (
    LOG_FIELDS,
    NAMED,
    SETTING_VALUES,
    has_form,
    is_name,
    label_is_shown,
    setting_is_shown,
    tokens,
    words,
)
from rioni.cli.doctor.checks.files import LogFile
from rioni.cli.doctor.checks.metrics import Metrics
from rioni.cli.doctor.diagnosis import CHECKS
from rioni.cli.doctor.model import Missing, Result
from rioni.cli.doctor.redaction import LINE_CHARACTERS_MAX, MASK, Redactor, is_secret
from rioni.config.settings import Config
from rioni.domain.errors import Invalid


# Shows only what is known to be no secret: facts by their names, words of our own texts, numbers and times.
#
# A list of the forms of secrets is never complete, so everything else is replaced by `NOT_SHOWN`.

NOT_SHOWN = "(a text that is not shown)"
_MARKS = "()[]'\"`.,:;!?-"
_TOKEN = re.compile(r"(\s+)")
_AROUND = re.compile(r"([(\[{'\"<`|]*)(.*?)([)\]}'\">`.,:;!?|]*)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d{1,7}|\d{1,3}(?:,\d{3})+)(?:\.\d{1,9})?(?:%|s|ms|h|d|kB|MB|GB|MiB|GiB)?")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?|\d\d:\d\d(?::\d\d)?"
)
_MODULE = re.compile(r"rioni(?:\.[a-z_]+)*")
_RAISED = re.compile(r"(?:[a-z_]+\.)*[A-Z][A-Za-z]+(?:Error|Exception|Warning|Timeout|Interrupt)")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|localhost")
_UUID = re.compile(r"[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}")
_SOURCE_LINE = re.compile(r'\s+File "[^"]*?(rioni/[\w/]+\.py|[\w]+\.py)", line (\d+), in (?:\w+|<\w+>)')
_METRIC = r"(?:rioni|nakadi|process|python)_\w+"
_SAMPLE = re.compile(rf"({_METRIC})(?:\{{(.*)\}})? ([-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|Inf|NaN))")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TYPE = re.compile(rf"# TYPE {_METRIC} [a-z]+")
_BETWEEN = frozenset({"is", "was", "=", ":", "=>"})


class Allowed:
    """Reduces texts and JSON values to parts that are known to be no secret.

    Args:
        facts: by source; names in them, such as those of event types, may be in texts.
        redactor: removes secrets that are known, also from names.
        names: other texts that may be shown, such as paths.
    """

    def __init__(self, facts: Mapping[str, Any], redactor: Redactor, names: Iterable[str] = ()) -> None:
        self._redactor = redactor
        found = {*names, *CHECKS}
        found.update(token.strip(_MARKS) for each in CHECKS.values() for token in each.looks_at.split())
        for fact in facts.values():
            if isinstance(fact, list) and fact and isinstance(fact[0], LogFile):
                found.update(each.path for each in fact if has_form("path", each.path))
            elif not isinstance(fact, Missing | Metrics | Config):
                found.update(_names(msgspec.to_builtins(fact)))
        self._known = {each for each in found if each and redactor.text(each) == each}

    def text(self, text: str) -> str:
        """A text of any length, with `NOT_SHOWN` instead of each run of words that are not known."""
        return "\n".join(map(self._line, self._redactor.text(text).split("\n")))

    def value(self, value: Any, name: str = "") -> Any:
        """A JSON value, without members whose names are not known.

        Args:
            value: the value.
            name: that of the member that it stands under.
        """
        if isinstance(value, str):
            shown = has_form(name, value) and self._redactor.text(value) == value
            return value if shown else self.text(value)
        if isinstance(value, Mapping):
            return dict(self._members(value, name))
        if isinstance(value, list | tuple):
            return [self.value(each, name) for each in value]
        return value

    def log(self, text: str) -> str:
        """Lines of a log, reduced to our own words and the members of `LOG_FIELDS`."""
        return "\n".join(map(self._log_line, text.split("\n")))

    def metrics(self, text: str) -> str:
        """Metrics in Prometheus' text format, without labels that are not known."""
        return "".join(f"{line}\n" for line in filter(None, map(self._sample, text.splitlines())))

    def _members(self, value: Mapping[Any, Any], name: str) -> Iterator[tuple[str, Any]]:
        for key, each in value.items():
            member = str(key)
            if name == SETTING_VALUES and isinstance(each, list | tuple):
                yield member, self._setting(member, *map(str, each))
            elif (form := NAMED.get(name)) is not None and is_name(member):
                shown = isinstance(each, str) and form.fullmatch(each) and self._redactor.text(each) == each
                yield member, each if shown else self.value(each)
            elif is_secret(member) and not isinstance(each, bool | None):
                yield self.text(member), MASK if each else each
            elif member in self._known or _is_word(member):
                yield member, self.value(each, member)
            else:
                yield NOT_SHOWN, NOT_SHOWN

    def _setting(self, name: str, text: str, source: str) -> list[str]:
        masked = self._redactor.value({name: text})[name]
        shown = masked if masked == MASK or setting_is_shown(name, str(masked)) else NOT_SHOWN
        return [shown, source if has_form("path", source) else self.text(source)]

    def _line(self, line: str) -> str:
        parts: list[str] = []
        before: list[str] = []
        for part in _TOKEN.split(line):
            if not part or part.isspace():
                parts.append(part)
                continue
            if self._token_is_shown(part, before):
                parts.append(part)
                before.append(part)
            else:
                parts.append(NOT_SHOWN)
                before.append(NOT_SHOWN)
        return re.sub(rf"{re.escape(NOT_SHOWN)}(?:\s+{re.escape(NOT_SHOWN)})+", NOT_SHOWN, "".join(parts))

    def _token_is_shown(self, token: str, before: list[str]) -> bool:
        if token in self._known or token == MASK:
            return True
        found = _AROUND.fullmatch(token)
        core = found[2] if found else token
        if core in {"", MASK} or core in self._known:
            return True
        if _follows_a_secret(before, core):
            return False
        if core in tokens() or _is_word(core) or _NUMBER.fullmatch(core) or _TIME.fullmatch(core):
            return True
        if _MODULE.fullmatch(core) or _RAISED.fullmatch(core) or _ADDRESS.fullmatch(core):
            return True
        return self._parts_are_shown(core)

    def _parts_are_shown(self, core: str) -> bool:
        package, equals, version = core.partition("==")
        if equals:
            return _is_word(package) and version in self._known
        name, equals, value = core.partition("=")
        if equals:
            return name in LOG_FIELDS and (_UUID.fullmatch(value) is not None or self._token_is_shown(value, []))
        host, colon, port = core.rpartition(":")
        if colon and port.isdecimal():
            return _ADDRESS.fullmatch(host) is not None
        if "/" in core:
            return all(
                not part or part == "*" or part in self._known or _is_word(part) for part in self._segments(core)
            )
        if "-" in core and not core.startswith("-"):
            return all(map(_is_word, core.split("-")))
        return False

    def _segments(self, path: str) -> list[str]:
        """The parts of a path; the beginning is left out if it is a path that is known."""
        start = max((each for each in self._known if path.startswith(f"{each}/")), key=len, default="")
        return re.split("[/#]", path[len(start) :])

    def _log_line(self, line: str) -> str:
        line = line.rstrip("\r")
        if found := _SOURCE_LINE.fullmatch(line):
            return f'  File "{found[1] if found[1].startswith("rioni/") else NOT_SHOWN}", line {found[2]}'
        if line.lstrip().startswith("{") and len(line) <= LINE_CHARACTERS_MAX:
            try:
                members = msgspec.json.decode(self._redactor.text(line), type=dict[str, Any])
            except (msgspec.DecodeError, RecursionError):
                return self.text(line)
            return self._as_text(members)
        return self.text(line)

    def _as_text(self, members: dict[str, Any]) -> str:
        """A line of the log in JSON as one in text."""
        time, level = (str(members.pop(each, "")) for each in ("timestamp", "level"))
        message, logger = str(members.pop("message", members.pop("event", ""))), str(members.pop("logger", ""))
        rest = " ".join(
            f"{name}={value}"
            for name, value in members.items()
            if name in LOG_FIELDS and isinstance(value, str | int | float)
        )
        return self.text(" ".join(filter(None, (time, f"[{level}]", message, logger and f"[{logger}]", rest))))

    def _sample(self, line: str) -> str:
        if _TYPE.fullmatch(line):
            return line
        found = _SAMPLE.fullmatch(line)
        if found is None:
            return ""
        labels = ",".join(f'{name}="{self._label(name, text)}"' for name, text in _LABEL.findall(found[2] or ""))
        return f"{found[1]}{f'{{{labels}}}' if labels else ''} {found[3]}"

    def _label(self, name: str, text: str) -> str:
        shown = label_is_shown(name, text) and self._redactor.text(text) == text
        return text if shown else self.text(text)


def with_allowed_logs(facts: Mapping[str, Any], allowed: Allowed) -> dict[str, Any]:
    """The facts, with lines of logs reduced, so that checks have no others."""
    return {
        name: [msgspec.structs.replace(each, text=allowed.log(each.text)) for each in fact]
        if isinstance(fact, list) and fact and isinstance(fact[0], LogFile)
        else fact
        for name, fact in facts.items()
    }


def _names(value: Any, name: str = "") -> Iterator[str]:
    """The texts of a fact that are shown as they are."""
    if isinstance(value, str):
        if has_form(name, value):
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if name in NAMED and is_name(str(key)):
                yield str(key)
            yield from _names(each, str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _names(each, name)


def _is_word(text: str) -> bool:
    return text.lower() in words()


def _follows_a_secret(before: list[str], core: str) -> bool:
    """Whether a word stands where a secret would: after its name, or after an option that is not shown."""
    place = len(before) - 1
    if place < 0:
        return False
    joined = before[place].lower() in _BETWEEN
    name = before[place - 1] if joined and place else before[place]
    if name == NOT_SHOWN:
        return not _is_word(core)
    if not is_secret(name.strip(_MARKS)) or name.endswith((".", ",", ";")):
        return False
    return joined or name.endswith((":", "=")) or name.startswith("-") or not _is_word(core)


# --- Packs the findings into one file for those who help: without secrets, without events, of bounded size ---

FILE_BYTES_MAX = 2_000_000
"""A longer file is cut: one of a log at its beginning, all others at their end."""
BUNDLE_BYTES_MAX = 20_000_000
"""Files that would exceed it are left out; the manifest names them."""
MANIFEST = "manifest.json"
_NEVER = frozenset({"config", "last_lines"})
"""Sources that are never included: unmasked settings, and lines that `logs` has, too."""


def write_bundle(path: Path, results: Sequence[Result], facts: Mapping[str, Any], allowed: Allowed) -> list[str]:
    """Write a bundle, with a manifest of the SHA-256 of its files; return their names.

    Args:
        path: of the new file, which only its owner may read.
        results: of the checks.
        facts: by source.
        allowed: lets through values that are known to be no secret.

    Raises:
        Invalid: the file exists already, or can't be written.
    """
    now = datetime.now(UTC)
    files, left_out = _bounded(_files(results, facts, allowed))
    manifest = {
        "created_at": now.isoformat(timespec="seconds"),
        "files": {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in files.items()},
        "left_out": left_out,
    }
    files[MANIFEST] = _json(manifest)
    folder = f"rioni-doctor-{now:%Y%m%dT%H%M%SZ}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as ex:
        raise Invalid(f"{path} exists already; name a new file for the bundle.") from ex
    except OSError as ex:
        raise Invalid(f"The bundle {path} can't be written: {ex.strerror}.") from ex
    try:
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime = len(data), int(time.time())
                archive.addfile(member, io.BytesIO(data))
    except OSError as ex:
        path.unlink()
        raise Invalid(f"The bundle {path} can't be written: {ex.strerror}.") from ex
    return list(files)


def _files(results: Sequence[Result], facts: Mapping[str, Any], allowed: Allowed) -> Iterator[tuple[str, bytes]]:
    """Names and contents, what matters most first."""
    lines = [msgspec.json.encode(allowed.value(msgspec.to_builtins(each))) for each in results]
    yield "results.jsonl", b"".join(line + b"\n" for line in lines)
    for name, each in facts.items():
        if name in _NEVER or isinstance(each, Missing | Metrics) or name == "logs":
            continue
        yield f"{name}.json", _json(allowed.value(msgspec.to_builtins(each), name))[:FILE_BYTES_MAX]
    metrics = facts.get("metrics")
    if isinstance(metrics, Metrics):
        yield "metrics.txt", allowed.metrics(metrics.text[:FILE_BYTES_MAX]).encode()
    logs = facts.get("logs")
    for number, log in enumerate(logs if isinstance(logs, list) else [], 1):
        if isinstance(log, LogFile):
            yield f"logs/{number}.log", allowed.log(log.text[-FILE_BYTES_MAX:]).encode()


def _bounded(files: Iterator[tuple[str, bytes]]) -> tuple[dict[str, bytes], list[str]]:
    kept: dict[str, bytes] = {}
    left_out, size = [], 0
    for name, data in files:
        if size + len(data) > BUNDLE_BYTES_MAX:
            left_out.append(name)
        else:
            kept[name] = data
            size += len(data)
    return kept, left_out


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
