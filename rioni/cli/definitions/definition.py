"""A definition of an event type or subscription: what it asks for, where it stands, and differences by path."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import UNSET

from rioni.cli.terminal.json_and_yaml import Path
from rioni.domain.json_patch import json_patch, names


# A definition of an event type or subscription: its content, source location and errors.

EVENT_TYPE = "event-type"
SUBSCRIPTION = "subscription"


@dataclass(frozen=True, order=True)
class Place:
    """The location of a definition: a file, and a line from 1; 0 if there is no line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, order=True)
class Problem:
    """An error in a definition, with its location; `about` names the definition, if it is known."""

    place: Place
    about: str
    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, [str(self.place), self.about, self.text]))


@dataclass(frozen=True)
class Definition:
    """The content of a document: a definition of a resource.

    Args:
        kind: `event-type` or `subscription`.
        members: those that it sets, as the API takes them.
        place: of the document.
    """

    kind: str
    members: Mapping[str, Any]
    place: Place

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the resource; definitions of the same resource have the same key."""
        if self.kind == EVENT_TYPE:
            return (self.kind, self.members["name"])
        group = self.members.get("consumer_group", "default")
        return (self.kind, self.members["owning_application"], group, *sorted(set(self.members["event_types"])))

    @property
    def name(self) -> str:
        """The name of the resource, for people."""
        return name_of(self.kind, self.members)


def name_of(kind: str, members: Mapping[str, Any]) -> str:
    """The name of an event type or subscription for people, if it has one."""
    if kind == EVENT_TYPE:
        return str(members.get("name", ""))
    parts = (members.get("owning_application", ""), members.get("consumer_group", "default"))
    return f"{'/'.join(map(str, parts))} of {', '.join(map(str, members.get('event_types') or ()))}"


def dotted(path: Path) -> str:
    """A path for people: `labels.team`, `authorization.admins[0]`, `labels["example.org/team"]`."""
    text = ""
    for segment in path:
        if isinstance(segment, int):
            text += f"[{segment}]"
        elif segment.replace("_", "").replace("$", "").replace("-", "").isalnum():
            text += f".{segment}" if text else segment
        else:
            text += f"[{json.dumps(segment, ensure_ascii=False)}]"
    return text


# --- The differences of two JSON values, by path, with old and new values ---


class ChangedValue(NamedTuple):
    """A value that differs; `UNSET` on the side that lacks it."""

    path: Path
    before: Any = UNSET
    after: Any = UNSET

    def as_json(self) -> dict[str, Any]:
        """An object with `path`, and `before` and `after` if there is such a value."""
        values = {"before": self.before, "after": self.after}
        return {"path": dotted(self.path)} | {name: value for name, value in values.items() if value is not UNSET}


def differences(before: Any, after: Any) -> list[ChangedValue]:
    """All differences, in the order in which they can be changed; none if the values are the same JSON."""
    return [_difference(before, operation) for operation in json_patch(before, after)]


def _difference(before: Any, operation: Any) -> ChangedValue:
    path: list[str | int] = []
    value = before
    for segment in names(operation["path"]):
        key = int(segment) if isinstance(value, list) else segment
        path.append(key)
        value = _member(value, key)
    there = operation["op"] != "add"
    return ChangedValue(tuple(path), value if there else UNSET, operation.get("value", UNSET))


def _member(value: Any, key: str | int) -> Any:
    """A member or item; UNSET if it does not exist, for example because it was added."""
    if isinstance(value, dict):
        return value.get(key, UNSET)
    return value[key] if isinstance(key, int) and key < len(value) else UNSET
