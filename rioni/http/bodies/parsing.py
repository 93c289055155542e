"""Converts request bodies to values of the domain.

The schemas check JSON types only (400); values are validated by the domain (422). Enum literals are case-insensitive
(reference common#json-bodies).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import fastjsonschema
import msgspec
import orjson

from rioni.commands.subscriptions.dead_letters import RedriveDeadLetters
from rioni.domain.errors import Invalid, InvalidFields, Malformed, MissingFields, TooLarge
from rioni.domain.event_types import rules
from rioni.domain.event_types.event_type import EventTypeSpec, SubmittedSchema
from rioni.domain.schemas.strict_json import JsonError
from rioni.domain.schemas.strict_json import members as unique_members
from rioni.domain.subscriptions.cursor_spec import CursorSpec, violations
from rioni.domain.subscriptions.dead_letters import DeadLetterFilter
from rioni.domain.subscriptions.subscription import READ_FROM, SubscriptionSpec
from rioni.domain.system import reports
from rioni.domain.system.reports import JobReport
from rioni.domain.system.settings import Admins
from rioni.domain.system.storages import KAFKA, StorageEntry
from rioni.domain.timelines.position import Cursor, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.http.bodies import body_schemas
from rioni.http.bodies.body_schemas import (
    ATTRIBUTE_MEMBERS,
    authorization_gaps,
    cursor_gaps,
    cursor_violations,
    gaps,
    list_gaps,
    named_place,
)
from rioni.wire.event_types import Statistic
from rioni.wire.subscriptions import REDRIVE_MAX, FailureReason


T = TypeVar("T")


CURSORS_MAX = 1_000
"""PERF: arithmetic with this many cursors takes 10 ms."""
_NOT_ABSENT = ("partition_strategy", "consumer_group")
"""The members for which null differs from absent."""
_UNIQUE = json.JSONDecoder(object_pairs_hook=unique_members, parse_int=len, parse_float=len)
"""Raises JsonError if an object has a member twice; numbers are not parsed."""


def event_type_spec(body: bytes) -> EventTypeSpec:
    """Read an event type.

    Raises:
        Malformed: not JSON, a wrong JSON type or an unknown literal.
        InvalidFields: an inner object lacks a member.
    """
    members = _read(body, body_schemas.EVENT_TYPE)
    _lower(members, "category", rules.CATEGORIES)
    _lower(members, "compatibility_mode", rules.COMPATIBILITY_MODES)
    _lower(members, "cleanup_policy", rules.CLEANUP_POLICIES)
    _lower(members, "audience", rules.AUDIENCES)
    if isinstance(members.get("event_owner_selector"), dict):
        _lower(members["event_owner_selector"], "type", rules.OWNER_SELECTOR_TYPES)
    if isinstance(members.get("schema"), dict):
        _lower(members["schema"], "type", None)
    InvalidFields.check(
        [
            *authorization_gaps(members, ("admins", "readers", "writers")),
            *gaps(members, "default_statistic", Statistic.__struct_fields__),
            *gaps(members, "event_owner_selector", ("type", "name", "value")),
        ]
    )
    return _convert(members, EventTypeSpec)


def submitted_schema(body: bytes) -> SubmittedSchema:
    """Read a schema; raises as `event_type_spec` does."""
    members = _read(body, body_schemas.SCHEMA)
    _lower(members, "type", None)
    return _convert(members, SubmittedSchema)


def subscription_spec(body: bytes) -> SubscriptionSpec:
    """Read a subscription; raises as `event_type_spec` does."""
    members = _read(body, body_schemas.SUBSCRIPTION)
    _lower(members, "read_from", READ_FROM)
    InvalidFields.check([*authorization_gaps(members, ("admins", "readers"))])
    if members.get("initial_cursors") is not None:
        members["initial_cursors"] = [named_place(item) for item in members["initial_cursors"]]
    return _convert(members, SubscriptionSpec)


def committed_cursors(body: bytes) -> list[dict[str, Any]]:
    """Read the cursors of a commit: event type, partition, offset and cursor token of each are non-empty.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidFields: a member is missing or empty (reference subscriptions#commit-checks).
    """
    members = _read(body, body_schemas.CURSORS)
    items = _items(members)
    InvalidFields.check(
        violation for index, item in enumerate(items) for violation in cursor_violations(item, f"items[{index}]")
    )
    return list(items)


def failure_reasons(body: bytes) -> list[dict[str, Any]]:
    """Read why events could not be processed: event type, partition, offset and reason of each are non-empty.

    Raises:
        Malformed: not JSON, a wrong JSON type, too many items, or a reason that is too long.
        InvalidFields: a member is missing or empty.
    """
    items = _items(_read(body, body_schemas.FAILURES))
    InvalidFields.check(
        (f"items[{index}].{member}", f"{member} cannot be empty")
        for index, item in enumerate(items)
        for member in FailureReason.__struct_fields__
        if not item.get(member)
    )
    return list(items)


def reset_cursors(body: bytes) -> list[CursorSpec]:
    """Read the cursors of a reset.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidFields: a member is missing, empty, or one too many.
    """
    names = [named_place(item) for item in _items(_read(body, body_schemas.PLACES))]
    InvalidFields.check(
        violation for index, named in enumerate(names) for violation in violations(named, f"items[{index}]")
    )
    return names


def cursors(body: bytes) -> list[dict[str, Any]]:
    """Read a list of cursors, each optionally with a shift.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidFields: a cursor lacks its partition, or has not exactly one of offset and timestamp.
    """
    items = _read_list(body, body_schemas.SHIFTS)
    InvalidFields.check(gap for index, item in enumerate(items) for gap in cursor_gaps(item, f"[{index}]"))
    return items


def cursor_pairs(body: bytes) -> list[dict[str, Any]]:
    """Read a list of pairs of cursors; raises as `cursors` does."""
    items = _read_list(body, body_schemas.PAIRS)
    InvalidFields.check(
        [
            gap
            for index, item in enumerate(items)
            for name in ("initial_cursor", "final_cursor")
            for gap in cursor_gaps(item.get(name) or {}, f"[{index}].{name}")
        ]
    )
    return items


def admins(body: bytes) -> Admins:
    """Read the administrators; raises as `event_type_spec` does."""
    members = _read(body, body_schemas.ADMINS)
    lists = ("admins", "readers", "writers")
    InvalidFields.check([gap for name in lists for gap in list_gaps(members, name, ATTRIBUTE_MEMBERS)])
    return _convert({name: members.get(name) or [] for name in lists}, Admins)


def feature(body: bytes) -> tuple[str, bool]:
    """Read a feature and whether it is on.

    Raises:
        Malformed: not JSON, a wrong JSON type, or no feature named.
    """
    members = _read(body, body_schemas.FEATURE)
    if members.get("feature") is None:
        raise MissingFields([("feature", "must not be null")])
    return members["feature"], bool(members.get("enabled"))


def storage(body: bytes) -> StorageEntry:
    """Read a storage; its configuration is checked when it is created.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        Invalid: a member is missing.
    """
    members = _read(body, body_schemas.STORAGE)
    for name in ("id", "storage_type"):
        if members.get(name) is None:
            raise Invalid(f'JSONObject["{name}"] not found.')
    storage_type = members["storage_type"].lower()
    configuration = members.get("kafka_configuration")
    if storage_type == KAFKA and configuration is None:
        raise Invalid('JSONObject["kafka_configuration"] not found.')
    return StorageEntry(
        id=members["id"],
        storage_type=storage_type,
        default=bool(members.get("default")),
        configuration=(configuration or {}) if storage_type == KAFKA else {},
    )


def timeline_request(body: bytes) -> str | None:
    """Read the storage of a new timeline.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
    """
    storage_id: str | None = _read(body, body_schemas.TIMELINE).get("storage_id")
    return storage_id


def partition_count(body: bytes) -> int | None:
    """Read the new number of partitions; raises as `timeline_request` does."""
    count: int | None = _read(body, body_schemas.PARTITION_COUNT).get("partition_count")
    return count


def redrive(subscription_id: str, body: bytes) -> RedriveDeadLetters:
    """Read the selection of dead letters to publish again.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidCursor: an offset is invalid.
        InvalidFields: the place to continue at lacks its partition or offset.
    """
    members = _read(body, body_schemas.REDRIVE)
    InvalidFields.check([*gaps(members, "after", ("partition", "offset"))])
    after = members.get("after")
    return RedriveDeadLetters(
        subscription_id=subscription_id,
        wanted=dead_letter_filter(members),
        limit=members.get("limit") or REDRIVE_MAX,
        force=bool(members.get("force")),
        after=None if after is None else Cursor(partition=after["partition"], offset=after["offset"]),
    )


def dead_letter_filter(members: Mapping[str, Any]) -> DeadLetterFilter:
    """The selected dead letters; raises InvalidCursor for an invalid offset."""
    partition = members.get("partition")
    places = {
        name: parse_offset(offset, partition=partition or "any", oldest_order=FIRST_ORDER)
        for name in ("from_offset", "to_offset")
        if (offset := members.get(name)) is not None
    }
    offsets = {name: place.offset for name, place in places.items() if place is not None}
    exact = {name: members.get(name) for name in ("event_type", "reason")}
    return DeadLetterFilter(partition=partition, **exact, **offsets)


def filter_evaluation(body: bytes) -> tuple[str, list[msgspec.Raw], list[str]]:
    """A filter, the events on which it is tried, and the event types whose schemas it has to fit.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidFields: one of them is missing.
    """
    members = _read(body, body_schemas.FILTER_EVALUATION)
    missing = [name for name in ("filter", "events") if members.get(name) is None]
    if missing:
        raise InvalidFields([(name, "must not be null") for name in missing])
    events = [msgspec.Raw(msgspec.json.encode(event)) for event in members["events"]]
    return members["filter"], events, members.get("event_types") or []


def stream_ticket(body: bytes) -> str:
    """The path of the stream that a ticket shall open.

    Raises:
        Malformed: not JSON, or a wrong JSON type.
        InvalidFields: it is missing.
    """
    path: str | None = _read(body, body_schemas.STREAM_TICKET).get("path")
    if path is None:
        raise InvalidFields([("path", "must not be null")])
    return path


def job_report(body: bytes) -> JobReport:
    """Read the report of a job about itself.

    Raises:
        Malformed: not JSON, a wrong JSON type, an unknown literal, or a text that is too long.
        InvalidFields: a member is missing.
    """
    members = _read(body, body_schemas.JOB)
    for name, literals in (("kind", (reports.ARCHIVE,)), ("state", reports.STATES)):
        if members.get(name) not in (*literals, None):
            raise Malformed(f"{name} must be one of {[*literals, None]}")
    if missing := [name for name in ("kind", "name", "state") if members.get(name) is None]:
        raise InvalidFields([(name, "must not be null") for name in missing])
    return _convert(members, JobReport)


def cosigned_note(body: bytes) -> str:
    """The signed note of a request with cosignatures.

    Raises:
        Malformed: this is not an object with the member `note`, a text.
    """
    found = json_body(body)
    if not isinstance(found, dict) or found.keys() != {"note"} or not isinstance(found["note"], str):
        raise Malformed('The body has to be an object with one member, the signed note: {"note": "..."}')
    return found["note"]


def json_body(body: bytes) -> Any:
    """Read any JSON.

    Raises:
        Malformed: it is not JSON, or an object has a member twice.
    """
    try:
        found = orjson.loads(body)
        if _may_repeat_members(body, found):
            # PERF: 14 µs for a commit, 20 ms for the largest schema, of which each character is escaped.
            _UNIQUE.decode(body.decode())
    except (orjson.JSONDecodeError, JsonError, RecursionError) as ex:
        raise Malformed(f"The body is not valid JSON: {ex}") from ex
    return found


def _may_repeat_members(text: bytes, found: Any) -> bool:
    """Whether an object may have a member twice: `found` has only the last one, so the text has more quotes.

    PERF: 1 µs. Quotes within strings need a backslash: only without any can they be counted.
    """
    try:
        return b"\\" in text or text.count(b'"') != orjson.dumps(found).count(b'"')
    except orjson.JSONEncodeError:  # deeper than it writes
        return True


def _read(body: bytes, shape: body_schemas.Shape) -> dict[str, Any]:
    members: dict[str, Any] = _shaped(body, shape)
    return members


def _items(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] | None = members.get("items")
    if items is None:
        raise InvalidFields([("items", "must not be null")])
    return items


def _read_list(body: bytes, shape: body_schemas.Shape) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = _shaped(body, shape)
    if len(items) > CURSORS_MAX:
        raise TooLarge(f"There are {len(items)} cursors in the request, at most {CURSORS_MAX} can be")
    return items


def _shaped(body: bytes, shape: body_schemas.Shape) -> Any:
    members = json_body(body)
    try:
        shape(members)
    except fastjsonschema.JsonSchemaValueException as ex:
        where = ".".join(map(str, ex.path[1:])) or "the body"
        expected = ex.message.partition(" ")[2]
        raise Malformed(f"{where} {expected}") from ex
    return members


def _convert(members: Mapping[str, Any], into: type[T]) -> T:
    present = {name: value for name, value in members.items() if value is not None or name in _NOT_ABSENT}
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
