"""The differences of two JSON values, by path, with what was there before and what is there then."""

from typing import Any, NamedTuple

from msgspec import UNSET

from rioni.cli.definitions.definition import dotted
from rioni.cli.terminal.yaml_text import Path
from rioni.domain.json_patch import json_patch, names


class Difference(NamedTuple):
    """A value that differs; `UNSET` where there is none."""

    path: Path
    before: Any = UNSET
    after: Any = UNSET

    def as_json(self) -> dict[str, Any]:
        """An object with `path`, and `before` and `after` where there is such a value."""
        values = {"before": self.before, "after": self.after}
        return {"path": dotted(self.path)} | {name: value for name, value in values.items() if value is not UNSET}


def differences(before: Any, after: Any) -> list[Difference]:
    """All that differs, in the order in which it can be changed; nothing where the values are the same JSON."""
    return [_difference(before, operation) for operation in json_patch(before, after)]


def _difference(before: Any, operation: Any) -> Difference:
    path: list[str | int] = []
    value = before
    for segment in names(operation["path"]):
        key = int(segment) if isinstance(value, list) else segment
        path.append(key)
        value = _member(value, key)
    there = operation["op"] != "add"
    return Difference(tuple(path), value if there else UNSET, operation.get("value", UNSET))


def _member(value: Any, key: str | int) -> Any:
    """A member or item; UNSET if there is none, as where one is added."""
    if isinstance(value, dict):
        return value.get(key, UNSET)
    return value[key] if isinstance(key, int) and key < len(value) else UNSET
