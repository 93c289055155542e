"""JSON types of the members of the API's request bodies.

They are fixed, so each is compiled once, when it is first used. Unknown members are ignored, null means absent.
Titles are names in the description of the API.
"""

from functools import cached_property
from typing import Any

import fastjsonschema

from rioni.domain.subscriptions.cursor_spec import SHIFT_MAX, SHIFT_MIN
from rioni.domain.system import jobs


class Shape:
    """The JSON types of a body: `schema` documents them, a call checks them."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

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


def _as_integers(schema: dict[str, Any], value: Any) -> Any:
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


def _nullable(kind: str, **keywords: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **keywords}


def _item(title: str, **properties: Any) -> dict[str, Any]:
    return {"title": title, "type": "object", "properties": properties}


STRING = _nullable("string")
INTEGER = _nullable("integer", minimum=-(2**63), maximum=2**63 - 1)
"""An integer of 64 bits, which readers of the log in any language can represent."""
STRINGS = _nullable("array", items={"type": "string"})
STRING_MAP = _nullable("object", additionalProperties={"type": "string"})
ATTRIBUTES = _nullable("array", items=_item("SubmittedAttribute", data_type=STRING, value=STRING))


def _object(title: str, /, **properties: Any) -> dict[str, Any]:
    return _nullable("object", title=title, properties=properties)


def _shape(**properties: Any) -> Shape:
    return Shape({"type": "object", "properties": properties})


def _list_shape(item: dict[str, Any]) -> Shape:
    return Shape({"type": "array", "items": item})


_SCHEMA = {"type": STRING, "schema": STRING}
STATISTIC = ("messages_per_minute", "message_size", "read_parallelism", "write_parallelism")
EVENT_TYPE = _shape(
    name=STRING,
    owning_application=STRING,
    category=STRING,
    enrichment_strategies=STRINGS,
    partition_strategy=STRING,
    partition_key_fields=STRINGS,
    cleanup_policy=STRING,
    ordering_key_fields=STRINGS,
    ordering_instance_ids=STRINGS,
    schema=_object("SubmittedEventTypeSchema", **_SCHEMA),
    default_statistic=_object("SubmittedStatistic", **dict.fromkeys(STATISTIC, INTEGER)),
    options=_object("SubmittedOptions", retention_time=INTEGER),
    authorization=_object("SubmittedEventTypeAuthorization", admins=ATTRIBUTES, readers=ATTRIBUTES, writers=ATTRIBUTES),
    annotations=STRING_MAP,
    labels=STRING_MAP,
    compatibility_mode=STRING,
    audience=STRING,
    event_owner_selector=_object("SubmittedEventOwnerSelector", type=STRING, name=STRING, value=STRING),
)
SUBMITTED_SCHEMA = _shape(**_SCHEMA)
_CURSOR = {"partition": STRING, "offset": STRING, "event_type": STRING}
CURSOR_MEMBERS = tuple(_CURSOR)
SHIFT = _nullable("integer", minimum=SHIFT_MIN, maximum=SHIFT_MAX)
_NAMED_PLACE = _item("SubmittedPlace", **_CURSOR, timestamp=STRING, shift=SHIFT)
SUBSCRIPTION = _shape(
    owning_application=STRING,
    event_types=STRINGS,
    consumer_group=STRING,
    read_from=STRING,
    initial_cursors=_nullable("array", items=_NAMED_PLACE),
    authorization=_object("SubmittedSubscriptionAuthorization", admins=ATTRIBUTES, readers=ATTRIBUTES),
    annotations=STRING_MAP,
    labels=STRING_MAP,
    filter=STRING,
)
_COMMITTED_CURSOR = _item("SubmittedCursor", **_CURSOR, cursor_token=STRING)
COMMITTED_MEMBERS = (*CURSOR_MEMBERS, "cursor_token")
CURSORS = _shape(items=_nullable("array", items=_COMMITTED_CURSOR))
FAILURES_MAX = 100
"""How many failures a request explains at most."""
REASON_CHARACTERS_MAX = 1_000
_FAILURE = _item("SubmittedFailure", **_CURSOR, reason=_nullable("string", maxLength=REASON_CHARACTERS_MAX))
FAILURE_MEMBERS = tuple(_FAILURE["properties"])
FAILURES = _shape(items=_nullable("array", items=_FAILURE, minItems=1, maxItems=FAILURES_MAX))
NAMED_PLACES = _shape(items=_nullable("array", items=_NAMED_PLACE))
_PLACE = {"partition": STRING, "offset": STRING, "timestamp": STRING}
CURSOR_LIST = _list_shape(_item("SubmittedShift", **_PLACE, shift=SHIFT))
_PAIR_CURSOR = _object("SubmittedPairCursor", **_PLACE)
CURSOR_PAIRS = _list_shape(_item("SubmittedCursorPair", initial_cursor=_PAIR_CURSOR, final_cursor=_PAIR_CURSOR))
ADMINS = _shape(admins=ATTRIBUTES, readers=ATTRIBUTES, writers=ATTRIBUTES)
STORAGE = _shape(id=STRING, storage_type=STRING, default=_nullable("boolean"), kafka_configuration=_nullable("object"))
TIMELINE = _shape(storage_id=STRING)
PARTITION_COUNT = _shape(partition_count=INTEGER)
FEATURE = _shape(feature=STRING, enabled=_nullable("boolean"))
REDRIVE_MAX = 1_000
"""Maximum, and default, number of dead letters to publish again with one request."""
REDRIVE = _shape(
    event_type=STRING,
    partition=STRING,
    from_offset=STRING,
    to_offset=STRING,
    reason=STRING,
    limit=_nullable("integer", minimum=1, maximum=REDRIVE_MAX),
    force=_nullable("boolean"),
    after=_object("SubmittedAfter", partition=STRING, offset=STRING),
)
_COUNT = _nullable("integer", minimum=0, maximum=jobs.COUNT_MAX)
JOB = _shape(
    kind=_nullable("string", title="SubmittedJobKind", enum=[jobs.ARCHIVE, None]),
    name=_nullable("string", minLength=1, maxLength=jobs.NAME_CHARACTERS_MAX),
    state=_nullable("string", title="SubmittedJobState", enum=[*jobs.STATES, None]),
    phase=_nullable("string", maxLength=jobs.NAME_CHARACTERS_MAX),
    done=_COUNT,
    total=_COUNT,
    detail=_nullable("string", maxLength=jobs.DETAIL_CHARACTERS_MAX),
)
STREAM_TICKET = _shape(path=STRING)
FILTER_EVALUATION = _shape(
    filter=STRING,
    events=_nullable("array", items={"type": "object"}),
    event_types=_nullable("array", items={"type": "string"}),
)
