"""The request bodies of the API: their structs, the members that they need, and the checks of both.

Unknown members are ignored, null means absent. Each check is compiled once, when it is first used.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import fastjsonschema

from rioni.domain.subscriptions.cursor_spec import CursorSpec, timestamp_violations
from rioni.wire import access, administration, event_types, events, subscriptions
from rioni.wire.base import Model
from rioni.wire.json_schema import Json, Use, schema


class Shape:
    """The JSON types of a body: `described` documents them, a call checks them."""

    def __init__(self, struct: type[Model], *required: str, name: str = "", many: bool = False) -> None:
        """The shape of a struct.

        Args:
            struct: its members.
            required: the members without which a request is refused.
            name: the name in the description of the API, if it differs from that of the struct.
            many: whether the body is an array.
        """
        self._struct = struct
        self._required = required
        self._name = name
        self._many = many

    @property
    def described(self) -> Json:
        """The JSON schema with descriptions."""
        found = schema(self._struct, Use.REQUEST)
        found |= {"required": [*self._required]} if self._required else {}
        found |= {"title": self._name} if self._name else {}
        return self._body(found)

    @cached_property
    def schema(self) -> Json:
        """The JSON schema that a body is checked with."""
        return self._body(schema(self._struct, Use.CHECK))

    @cached_property
    def _check(self) -> Any:
        # PERF: 1 ms each; all of them together took 17 ms of the start.
        draft = "http://json-schema.org/draft-07/schema#"
        return fastjsonschema.compile({"$schema": draft, **self.schema}, use_default=False)

    @cached_property
    def _has_integers(self) -> bool:
        return "'integer'" in repr(self.schema)

    def __call__(self, members: Any) -> None:
        """Check a body, and convert `1.0` to an integer if one is expected; raises JsonSchemaValueException."""
        self._check(members)
        if self._has_integers:
            _as_integers(self.schema, members)

    def _body(self, found: Json) -> Json:
        return {"type": "array", "items": found} if self._many else found


def _as_integers(schema: Json, value: Any) -> Any:
    """A value that fits its schema, with integers for numbers such as `1.0`, which are whole for JSON Schema."""
    if isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name in value:
                value[name] = _as_integers(each, value[name])
    elif isinstance(value, list):
        value[:] = [_as_integers(schema.get("items", {}), each) for each in value]
    elif isinstance(value, float) and "integer" in schema.get("type", ()):
        return int(value)
    return value


EVENT_TYPE = Shape(event_types.EventType, "name", "owning_application", "category", "schema")
SCHEMA = Shape(event_types.Schema, "schema", name="SubmittedSchema")
PARTITION_COUNT = Shape(event_types.PartitionCount, "partition_count")
TIMELINE = Shape(event_types.SubmittedTimeline, "storage_id")
SUBSCRIPTION = Shape(subscriptions.Subscription, "owning_application", "event_types")
FILTER_EVALUATION = Shape(subscriptions.SubmittedFilterEvaluation, "filter", "events")
FAILURES = Shape(subscriptions.Failures, "items")
REDRIVE = Shape(subscriptions.SubmittedRedrive)
CURSORS = Shape(events.Cursors, "items")
PLACES = Shape(events.Places, "items")
SHIFTS = Shape(events.CursorShift, many=True)
PAIRS = Shape(events.CursorPair, many=True)
STREAM_TICKET = Shape(events.SubmittedStreamTicket, "path")
ADMINS = Shape(access.Admins, name="SubmittedAdmins")
FEATURE = Shape(administration.Feature, "feature", name="SubmittedFeature")
STORAGE = Shape(administration.Storage, "id", "storage_type")
JOB = Shape(administration.JobReport, "kind", "name", "state")


# --- Members of objects within bodies: the cursors that they name, and the violations by missing members ---

_PLACE = ("partition", "offset", "event_type", "timestamp")
ATTRIBUTE_MEMBERS = ("data_type", "value")
"""The members of an attribute of an authorization section."""


def named_place(item: Mapping[str, Any]) -> CursorSpec:
    """The cursor spec of an item with valid JSON types."""
    shift = item.get("shift") or 0
    return CursorSpec(**{name: item.get(name) for name in _PLACE}, shift=shift)


def place_of_pair(item: Mapping[str, Any]) -> CursorSpec:
    """The cursor spec of a cursor in a pair, which is not shifted: any member `shift` is ignored."""
    return named_place({**item, "shift": None})


def cursor_gaps(item: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the violations of a cursor that lacks its partition, or has not exactly one of offset and timestamp."""
    if not item.get("partition"):
        yield f"{path}.partition", "partition must not be null"
    if item.get("timestamp") is None and not item.get("offset"):
        yield f"{path}.offset", "offset must not be null"
    yield from timestamp_violations(place_of_pair(item), path)


def cursor_violations(item: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the violations of a committed cursor of which a member is missing or empty."""
    for member in ("partition", "offset"):
        if not item.get(member):
            yield f"{path}.{member}", f"cursor {member} cannot be empty"
    for member in ("event_type", "cursor_token"):
        if item.get(member) is None:
            yield f"{path}.{member}", "must not be null"


def authorization_gaps(members: Mapping[str, Any], lists: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the violations of an authorization section in which a list, or a member of an attribute, is missing."""
    yield from gaps(members, "authorization", lists)
    for name in lists:
        yield from list_gaps(members.get("authorization") or {}, name, ATTRIBUTE_MEMBERS, "authorization.")


def gaps(members: Mapping[str, Any], name: str, required: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a violation for each required member that an inner object lacks; none without this object."""
    inner = members.get(name)
    for member in required:
        if inner is not None and inner.get(member) is None:
            yield f"{name}.{member}", "must not be null"


def list_gaps(
    members: Mapping[str, Any], name: str, required: Sequence[str], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield a violation for each required member that an item of a list lacks."""
    for index, item in enumerate(members.get(name) or ()):
        for member in required:
            if item.get(member) is None:
                yield f"{prefix}{name}[{index}].{member}", "must not be null"
