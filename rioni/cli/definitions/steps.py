"""Steps that make a resource what its definition asks for; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from rioni.cli.definitions.definition import (
    EVENT_TYPE,
    ChangedValue,
    Definition,
    SourceLocation,
    comparable,
    differences,
    name_of,
)
from rioni.domain.errors import Invalid
from rioni.wire.event_types import EventType
from rioni.wire.subscriptions import Subscription


Resource = EventType | Subscription

CHANGEABLE = ("authorization", "annotations", "labels", "filter")
"""Members of a subscription that may change after its creation."""
PARALLELISM = ("read_parallelism", "write_parallelism")


class Action(StrEnum):
    """The action of a step."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True)
class Step:
    """A step of a plan: what to do with an event type or subscription.

    Args:
        kind: `event-type` or `subscription`.
        current: what the broker has; None for something new.
        after: its members then, as the API takes them; None if it is deleted.
        place: of the definition; None if there is none.
        id: of a subscription; None before it is created, and of event types.
        partitions: how many an event type has then, if there are more than before.
        notes: what people should know about it.
    """

    kind: str
    current: Resource | None
    after: Mapping[str, Any] | None
    place: SourceLocation | None = None
    id: str | None = None
    partitions: int | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def before(self) -> Mapping[str, Any] | None:
        """The members that the broker has."""
        return None if self.current is None else self.current.members()

    @property
    def name(self) -> str:
        """The name of the resource, for people."""
        return name_of(self.kind, self.after or self.before or {})

    @cached_property
    def changes(self) -> list[ChangedValue]:
        """The differences that the step makes; schemas are compared as JSON."""
        return differences(self.before and comparable(self.before), self.after and comparable(self.after))

    @property
    def action(self) -> Action:
        """The action that the step takes."""
        if self.current is None:
            return Action.CREATE
        if self.after is None:
            return Action.DELETE
        return Action.CHANGE if self.changes else Action.KEEP

    @property
    def changes_schema(self) -> bool:
        """Whether the schema of an event type that exists gets a new version."""
        return self.action is Action.CHANGE and any(each.path[:1] == ("schema",) for each in self.changes)

    @property
    def first_update(self) -> Mapping[str, Any]:
        """The members of an event type before its partitions are added, which changes the statistic by itself."""
        assert self.before is not None
        assert self.after is not None
        if self.partitions is None:
            return self.after
        statistic = self.before.get("default_statistic")
        if statistic is None:
            return {name: value for name, value in self.after.items() if name != "default_statistic"}
        parallelism = {name: statistic[name] for name in PARALLELISM}
        return {**self.after, "default_statistic": {**self.after["default_statistic"], **parallelism}}

    def as_json(self) -> dict[str, Any]:
        """The step for programs."""
        return {
            "action": self.action.value,
            "kind": self.kind,
            "name": self.name,
            "id": self.id,
            "file": self.place and self.place.file,
            "line": self.place and self.place.line,
            "changes": [each.as_json() for each in self.changes] if self.action is Action.CHANGE else [],
            "notes": list(self.notes),
        }


def step(definition: Definition, current: Resource | None) -> Step:
    """The step for a definition; raises Invalid if the state that it asks for can't be reached.

    Members that the definition lacks keep their values. Of `options` this holds for each member.

    Args:
        definition: of the resource.
        current: the resource of its key, if there is one.
    """
    if isinstance(current, EventType) or (current is None and definition.kind == EVENT_TYPE):
        return _event_type_step(definition, current)
    return _subscription_step(definition, current)


def ordered(steps: Iterable[Step]) -> list[Step]:
    """Steps so that each can be done: subscriptions after the event types they need, deletions last."""
    return sorted(steps, key=lambda each: (each.after is None, (each.kind == EVENT_TYPE) == (each.after is None)))


def _event_type_step(definition: Definition, current: EventType | None) -> Step:
    given = definition.members
    if current is None:
        missing = [name for name in ("owning_application", "schema") if name not in given]
        if missing:
            raise Invalid(f"there is no such event type, and for a new one this is missing: {', '.join(missing)}")
        enrichment = [] if given.get("category") == "undefined" else ["metadata_enrichment"]
        defaults = {"category": "business", "enrichment_strategies": enrichment}
        after = {"name": given["name"], **defaults, **given}
        return Step(EVENT_TYPE, None, after, definition.place)
    before = current.members()
    after = {**before, **given, "options": {**before["options"], **given.get("options", {})}}
    if not differences(comparable({"schema": before["schema"]}), comparable({"schema": after["schema"]})):
        after["schema"] = before["schema"]
    partitions = None
    if "default_statistic" in given:
        partitions, after["default_statistic"] = _statistic(before.get("default_statistic"), given["default_statistic"])
    return Step(EVENT_TYPE, current, after, definition.place, partitions=partitions)


def _statistic(before: Mapping[str, Any] | None, given: Mapping[str, Any]) -> tuple[int | None, Mapping[str, Any]]:
    """The number of partitions, if there are more than before, and the statistic then."""
    wanted = _parallelism(given)
    if before is None:
        return wanted, {**given, **dict.fromkeys(PARALLELISM, wanted)}
    there = _parallelism(before)
    if wanted < there:
        raise Invalid(f"default_statistic asks for {wanted} partitions instead of {there}; none can be removed")
    if wanted > there:
        return wanted, {**given, **dict.fromkeys(PARALLELISM, wanted)}
    return None, {**given, **{name: before[name] for name in PARALLELISM}}


def _parallelism(statistic: Mapping[str, Any]) -> int:
    return max(int(statistic[name]) for name in PARALLELISM)


def _subscription_step(definition: Definition, current: Subscription | None) -> Step:
    given = {**definition.members, "event_types": sorted(set(definition.members["event_types"]))}
    if current is None:
        return Step(definition.kind, None, {"consumer_group": "default", "read_from": "end", **given}, definition.place)
    before = current.members()
    after = before | {name: given[name] for name in CHANGEABLE if name in given}
    if not after.get("filter") and not before.get("filter"):
        after.pop("filter", None)
    read_from = before["read_from"]
    note = f"read_from stays {read_from}: it counts at creation; `rioni subscriptions reset` moves cursors"
    notes = (note,) if given.get("read_from", read_from) != read_from else ()
    return Step(definition.kind, current, after, definition.place, current.id, notes=notes)
