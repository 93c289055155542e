"""A definition of an event type or subscription: what it asks for, where it stands, and what is wrong with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rioni.cli.terminal.yaml_text import Path


EVENT_TYPE = "event-type"
SUBSCRIPTION = "subscription"


@dataclass(frozen=True, order=True)
class Place:
    """Where a definition stands: a file, and a line from 1; 0 stands for no line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, order=True)
class Problem:
    """What is wrong with a definition, and where; `about` names it, if it is known."""

    place: Place
    about: str
    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, [str(self.place), self.about, self.text]))


@dataclass(frozen=True)
class Definition:
    """What a document asks for.

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
        """What says which resource it is; two definitions of one have the same key."""
        if self.kind == EVENT_TYPE:
            return (self.kind, self.members["name"])
        group = self.members.get("consumer_group", "default")
        return (self.kind, self.members["owning_application"], group, *sorted(set(self.members["event_types"])))

    @property
    def name(self) -> str:
        """The name of the resource, for people."""
        return name_of(self.kind, self.members)


def name_of(kind: str, members: Mapping[str, Any]) -> str:
    """The name of an event type or subscription for people, as far as there is one."""
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
