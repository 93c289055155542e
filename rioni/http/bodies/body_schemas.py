"""JSON types of the members of the API's request bodies.

They are fixed, so each is compiled once, when it is first used. Unknown members are ignored, null means absent.
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

    def __call__(self, members: Any) -> None:
        """Check a body; raises JsonSchemaValueException."""
        self._check(members)


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
    schema=_object(**_SCHEMA),
    default_statistic=_object(**dict.fromkeys(STATISTIC, INTEGER)),
    options=_object(retention_time=INTEGER),
    authorization=_object(admins=ATTRIBUTES, readers=ATTRIBUTES, writers=ATTRIBUTES),
    annotations=STRING_MAP,
    labels=STRING_MAP,
    compatibility_mode=STRING,
    audience=STRING,
    event_owner_selector=_object(type=STRING, name=STRING, value=STRING),
)
SUBMITTED_SCHEMA = _shape(**_SCHEMA)
_CURSOR = {"partition": STRING, "offset": STRING, "event_type": STRING}
CURSOR_MEMBERS = tuple(_CURSOR)
SHIFT = _nullable("integer", minimum=SHIFT_MIN, maximum=SHIFT_MAX)
_NAMED_PLACE = {"type": "object", "properties": {**_CURSOR, "timestamp": STRING, "shift": SHIFT}}
SUBSCRIPTION = _shape(
    owning_application=STRING,
    event_types=STRINGS,
    consumer_group=STRING,
    read_from=STRING,
    initial_cursors=_nullable("array", items=_NAMED_PLACE),
    authorization=_object(admins=ATTRIBUTES, readers=ATTRIBUTES),
    annotations=STRING_MAP,
    labels=STRING_MAP,
    filter=STRING,
)
_COMMITTED_CURSOR = {"type": "object", "properties": {**_CURSOR, "cursor_token": STRING}}
COMMITTED_MEMBERS = (*CURSOR_MEMBERS, "cursor_token")
CURSORS = _shape(items=_nullable("array", items=_COMMITTED_CURSOR))
NAMED_PLACES = _shape(items=_nullable("array", items=_NAMED_PLACE))
_PLACE = {"partition": STRING, "offset": STRING, "timestamp": STRING}
CURSOR_LIST = _list_shape({"type": "object", "properties": {**_PLACE, "shift": SHIFT}})
CURSOR_PAIRS = _list_shape(
    {"type": "object", "properties": {"initial_cursor": _object(**_PLACE), "final_cursor": _object(**_PLACE)}}
)
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
    after=_object(partition=STRING, offset=STRING),
)
_COUNT = _nullable("integer", minimum=0, maximum=jobs.COUNT_MAX)
JOB = _shape(
    kind=_nullable("string", enum=[jobs.ARCHIVE, None]),
    name=_nullable("string", minLength=1, maxLength=jobs.NAME_CHARACTERS_MAX),
    state=_nullable("string", enum=[*jobs.STATES, None]),
    phase=_nullable("string", maxLength=jobs.NAME_CHARACTERS_MAX),
    done=_COUNT,
    total=_COUNT,
    detail=_nullable("string", maxLength=jobs.DETAIL_CHARACTERS_MAX),
)
FILTER_EVALUATION = _shape(
    filter=STRING,
    events=_nullable("array", items={"type": "object"}),
    event_types=_nullable("array", items={"type": "string"}),
)
