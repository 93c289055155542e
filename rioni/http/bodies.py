"""The shapes of the request bodies that the broker itself understands, and their way into the domain's values.

The shapes are fixed and ours, so they are compiled once, at import. They settle JSON types only (400); what a value may
be is for the domain to say (422). Unknown members are ignored, null stands for absent, enum literals are taken in any
case (registry contract 1.4).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import fastjsonschema
import msgspec
import orjson

from rioni.domain import event_type_rules
from rioni.domain.errors import InvalidFields, Malformed
from rioni.domain.event_type import EventTypeSpec, SubmittedSchema
from rioni.domain.settings import Admins
from rioni.domain.subscription import READ_FROM, SubscriptionSpec


T = TypeVar("T")
Shape = Callable[[Any], Any]


def _nullable(kind: str, **keywords: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **keywords}


STRING = _nullable("string")
INTEGER = _nullable("integer")
STRINGS = _nullable("array", items={"type": "string"})
STRING_MAP = _nullable("object", additionalProperties={"type": "string"})
ATTRIBUTES = _nullable("array", items={"type": "object", "properties": {"data_type": STRING, "value": STRING}})


def _object(**properties: Any) -> dict[str, Any]:
    return _nullable("object", properties=properties)


def _shape(**properties: Any) -> Shape:
    return _compiled({"type": "object", "properties": properties})


def _list_shape(item: dict[str, Any]) -> Shape:
    return _compiled({"type": "array", "items": item})


def _compiled(schema: dict[str, Any]) -> Shape:
    draft = "http://json-schema.org/draft-07/schema#"
    compiled: Shape = fastjsonschema.compile({"$schema": draft, **schema}, use_default=False)
    return compiled


_SCHEMA = {"type": STRING, "schema": STRING}
_STATISTIC = ("messages_per_minute", "message_size", "read_parallelism", "write_parallelism")
_EVENT_TYPE = _shape(
    name=STRING,
    owning_application=STRING,
    category=STRING,
    enrichment_strategies=STRINGS,
    partition_strategy=STRING,
    partition_key_fields=STRINGS,
    cleanup_policy=STRING,
    ordering_key_fields=STRINGS,
    ordering_instance_ids=STRINGS,
    schema=_object(**_SCHEMA),
    default_statistic=_object(**dict.fromkeys(_STATISTIC, INTEGER)),
    options=_object(retention_time=INTEGER),
    authorization=_object(admins=ATTRIBUTES, readers=ATTRIBUTES, writers=ATTRIBUTES),
    annotations=STRING_MAP,
    labels=STRING_MAP,
    compatibility_mode=STRING,
    audience=STRING,
    event_owner_selector=_object(type=STRING, name=STRING, value=STRING),
)
_SUBMITTED_SCHEMA = _shape(**_SCHEMA)
_CURSOR = {"partition": STRING, "offset": STRING, "event_type": STRING}
_SUBSCRIPTION = _shape(
    owning_application=STRING,
    event_types=STRINGS,
    consumer_group=STRING,
    read_from=STRING,
    initial_cursors=_nullable("array", items={"type": "object", "properties": _CURSOR}),
    authorization=_object(admins=ATTRIBUTES, readers=ATTRIBUTES),
    annotations=STRING_MAP,
    labels=STRING_MAP,
)
_COMMITTED_CURSOR = {"type": "object", "properties": {**_CURSOR, "cursor_token": STRING}}
_CURSORS = _shape(items=_nullable("array", items=_COMMITTED_CURSOR))
_PLACE = {"type": ["object", "null"], "properties": {"partition": STRING, "offset": STRING, "shift": INTEGER}}
_CURSOR_LIST = _list_shape({**_PLACE, "type": "object"})
_CURSOR_PAIRS = _list_shape({"type": "object", "properties": {"initial_cursor": _PLACE, "final_cursor": _PLACE}})
_ADMINS = _shape(admins=ATTRIBUTES, readers=ATTRIBUTES, writers=ATTRIBUTES)
_FEATURE = _shape(feature=STRING, enabled=_nullable("boolean"))

_ATTRIBUTE_MEMBERS = ("data_type", "value")


def event_type_spec(body: bytes) -> EventTypeSpec:
    """Read an event type.

    Raises:
        Malformed: not JSON, a wrong JSON type or an unknown literal.
        InvalidFields: an inner object lacks a member.
    """
    members = _read(body, _EVENT_TYPE)
    _lower(members, "category", event_type_rules.CATEGORIES)
    _lower(members, "compatibility_mode", event_type_rules.COMPATIBILITY_MODES)
    _lower(members, "cleanup_policy", event_type_rules.CLEANUP_POLICIES)
    _lower(members, "audience", event_type_rules.AUDIENCES)
    if isinstance(members.get("schema"), dict):
        _lower(members["schema"], "type", None)
    _require(
        [
            *_authorization_gaps(members, ("admins", "readers", "writers")),
            *_gaps(members, "default_statistic", _STATISTIC),
            *_gaps(members, "event_owner_selector", ("type", "name", "value")),
        ]
    )
    return _convert(members, EventTypeSpec)


def submitted_schema(body: bytes) -> SubmittedSchema:
    """Read a schema; raises as `event_type_spec` does."""
    members = _read(body, _SUBMITTED_SCHEMA)
    _lower(members, "type", None)
    return _convert(members, SubmittedSchema)


def subscription_spec(body: bytes) -> SubscriptionSpec:
    """Read a subscription; raises as `event_type_spec` does."""
    members = _read(body, _SUBSCRIPTION)
    _lower(members, "read_from", READ_FROM)
    _require(
        [
            *_authorization_gaps(members, ("admins", "readers")),
            *_list_gaps(members, "initial_cursors", tuple(_CURSOR)),
        ]
    )
    return _convert(members, SubscriptionSpec)


def committed_cursors(body: bytes) -> list[dict[str, Any]]:
    """Read the cursors of a commit: event type, partition, offset and cursor token of each are non-empty.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidFields: a member is missing or empty (consumption contract 7.2).
    """
    members = _read(body, _CURSORS)
    items = _items(members)
    _require(
        [violation for index, item in enumerate(items) for violation in _cursor_violations(item, f"items[{index}]")]
    )
    return list(items)


def reset_cursors(body: bytes) -> list[dict[str, Any]]:
    """Read the cursors of a reset: event type, partition and offset of each are non-empty; raises as for a commit."""
    items = _items(_read(body, _CURSORS))
    _require(
        [
            (f"items[{index}].{member}", "must not be null")
            for index, item in enumerate(items)
            for member in _CURSOR
            if not item.get(member)
        ]
    )
    return items


def cursors(body: bytes) -> list[dict[str, Any]]:
    """Read a list of cursors, which may say how far to shift them.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidFields: a cursor lacks partition or offset.
    """
    items = _read_list(body, _CURSOR_LIST)
    _require([gap for index, item in enumerate(items) for gap in _cursor_gaps(item, f"[{index}]")])
    return items


def cursor_pairs(body: bytes) -> list[dict[str, Any]]:
    """Read a list of pairs of cursors; raises as `cursors` does."""
    items = _read_list(body, _CURSOR_PAIRS)
    _require(
        [
            gap
            for index, item in enumerate(items)
            for name in ("initial_cursor", "final_cursor")
            for gap in _cursor_gaps(item.get(name) or {}, f"[{index}].{name}")
        ]
    )
    return items


def admins(body: bytes) -> Admins:
    """Read the administrators; raises as `event_type_spec` does."""
    members = _read(body, _ADMINS)
    lists = ("admins", "readers", "writers")
    _require([gap for name in lists for gap in _list_gaps(members, name, _ATTRIBUTE_MEMBERS)])
    return _convert({name: members.get(name) or [] for name in lists}, Admins)


def feature(body: bytes) -> tuple[str, bool]:
    """Read a feature and whether it is on.

    Raises:
        Malformed: not JSON, a wrong JSON type, or no feature named.
    """
    members = _read(body, _FEATURE)
    if members.get("feature") is None:
        raise Malformed("feature must not be null")
    return members["feature"], bool(members.get("enabled"))


def json_body(body: bytes) -> Any:
    """Read any JSON.

    Raises:
        Malformed: it is not JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as ex:
        raise Malformed(f"The body is not valid JSON: {ex}") from ex


def _read(body: bytes, shape: Shape) -> dict[str, Any]:
    members: dict[str, Any] = _shaped(body, shape)
    return members


def _items(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] | None = members.get("items")
    if items is None:
        raise InvalidFields([("items", "must not be null")])
    return items


def _read_list(body: bytes, shape: Shape) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = _shaped(body, shape)
    return items


def _shaped(body: bytes, shape: Shape) -> Any:
    members = json_body(body)
    try:
        shape(members)
    except fastjsonschema.JsonSchemaValueException as ex:
        where = ".".join(map(str, ex.path[1:])) or "the body"
        expected = ex.message.partition(" ")[2]
        raise Malformed(f"{where} {expected}") from ex
    return members


def _convert(members: Mapping[str, Any], into: type[T]) -> T:
    present = {name: value for name, value in members.items() if value is not None or name == "partition_strategy"}
    try:
        return msgspec.convert(present, into)
    except msgspec.ValidationError as ex:
        raise Malformed(str(ex)) from ex


def _lower(members: dict[str, Any], name: str, literals: Sequence[str] | None) -> None:
    if (value := members.get(name)) is None:
        return
    members[name] = lowered = value.lower().replace("_", "-") if name == "audience" else value.lower()
    if literals is not None and lowered not in literals:
        raise Malformed(f"Illegal enum value: '{value}'. Possible values: [{', '.join(literals)}]")


def _cursor_gaps(item: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for member in ("partition", "offset"):
        if not item.get(member):
            yield f"{path}.{member}", f"{member} must not be null"


def _cursor_violations(item: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for member in ("partition", "offset"):
        if not item.get(member):
            yield f"{path}.{member}", f"cursor {member} cannot be empty"
    for member in ("event_type", "cursor_token"):
        if item.get(member) is None:
            yield f"{path}.{member}", "must not be null"


def _authorization_gaps(members: Mapping[str, Any], lists: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from _gaps(members, "authorization", lists)
    for name in lists:
        yield from _list_gaps(members.get("authorization") or {}, name, _ATTRIBUTE_MEMBERS, "authorization.")


def _gaps(members: Mapping[str, Any], name: str, required: Sequence[str]) -> Iterator[tuple[str, str]]:
    inner = members.get(name)
    for member in required:
        if inner is not None and inner.get(member) is None:
            yield f"{name}.{member}", "must not be null"


def _list_gaps(
    members: Mapping[str, Any], name: str, required: Sequence[str], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    for index, item in enumerate(members.get(name) or ()):
        for member in required:
            if item.get(member) is None:
                yield f"{prefix}{name}[{index}].{member}", "must not be null"


def _require(violations: Sequence[tuple[str, str]]) -> None:
    if violations:
        raise InvalidFields(violations)
