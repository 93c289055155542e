"""The columns of an event type: Arrow types by its schema, events as rows, and the union of two versions.

What a schema leaves open (several types, `oneOf`, no properties) is a column of JSON; what it does not declare is in
`_rest`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from rioni.domain.errors import Invalid
from rioni.domain.schemas.walker import resolve
from rioni.lake.avro_columns import avro_type
from rioni.lake.column_types import DEPTH_MAX, FIELDS_MAX, JSON, affords, can_name, distinct, list_of


COLUMNS_MAX = 1_000
PARTITION, OFFSET, CORRUPT = "_partition", "_offset", "_corrupt"
REST = "_rest"
"""The members of an event that no column has, as JSON."""

_TEXTS = ("eid", "event_type", "occurred_at", "received_at", "version", "published_by", "flow_id", "partition")
_METADATA = pa.struct(
    [
        *((name, pa.string()) for name in (*_TEXTS, "partition_compaction_key")),
        ("span_ctx", JSON),
        ("partition_keys", pa.list_(pa.string())),
        ("parent_eids", pa.list_(pa.string())),
    ]
)
OWN = {REST: JSON, PARTITION: pa.string(), OFFSET: pa.string(), CORRUPT: pa.string()}
_TAKEN = {*OWN, "_event_type"}
"""Names that no member has as its column, in any case: it is in `_rest`."""
_JSON_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_COMBINED = {"$ref", "allOf", "anyOf", "oneOf", "not", "if"}


def event_schema(kind: str, schema: str, category: str) -> pa.Schema:
    """The columns of an event type, and `_rest`, `_partition`, `_offset` and `_corrupt`.

    Args:
        kind: `json_schema` or `avro_schema`.
        schema: its text.
        category: of the event type.

    Raises:
        Invalid: the schema can't be read, or has too many columns.
    """
    try:
        parsed = orjson.loads(schema)
    except orjson.JSONDecodeError as ex:
        raise Invalid(f"The schema can't be read: {ex}") from ex
    payload = _json_root(parsed) if kind == "json_schema" else avro_type(parsed)
    fields: dict[str, pa.DataType] = {}
    if category == "data":
        fields |= {"data_type": pa.string(), "data_op": pa.string(), "data": payload}
    elif pa.types.is_struct(payload):
        fields |= {each.name: each.type for each in payload}
    if category != "undefined":
        fields["metadata"] = _METADATA
    fields = {name: each for name, each in fields.items() if name.lower() not in _TAKEN and can_name(name)}
    if len(fields) > COLUMNS_MAX:
        raise Invalid(f"The schema has more than {COLUMNS_MAX} fields.")
    return pa.schema(list((fields | OWN).items()))


def _json_root(schema: Any) -> pa.DataType:
    found = _referenced(schema, schema)
    properties = found.get("properties") if isinstance(found, dict) and not _COMBINED & found.keys() else None
    if not isinstance(properties, dict) or not properties:
        return JSON
    budget = iter(range(FIELDS_MAX))
    return pa.struct([(name, _json_type(each, schema, budget, 1)) for name, each in properties.items()])


def _json_type(schema: Any, root: Any, budget: Iterator[int], depth: int) -> pa.DataType:
    schema = _referenced(schema, root)
    if not isinstance(schema, dict) or _COMBINED & schema.keys() or depth > DEPTH_MAX:
        return JSON
    properties, kinds = schema.get("properties"), schema.get("type", "object" if "properties" in schema else None)
    named = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each != "null"]
    if len(named) != 1:
        return JSON
    if named[0] == "object" and isinstance(properties, dict) and distinct(properties) and affords(budget, properties):
        return pa.struct([(name, _json_type(each, root, budget, depth + 1)) for name, each in properties.items()])
    if named[0] == "array" and isinstance(schema.get("items"), dict):
        return list_of(_json_type(schema["items"], root, budget, depth + 1))
    return _JSON_TYPES.get(str(named[0]), JSON)


def _referenced(schema: Any, root: Any) -> Any:
    """What a schema refers to within the same document, through a few steps; itself where it is no such reference."""
    for _ in range(DEPTH_MAX):
        pointer = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(pointer, str) or not pointer.startswith("#/"):
            break
        try:
            schema = resolve(root, pointer)
        except LookupError:
            return None
    return schema


DOC = {"doc": "JSON"}
"""The mark in tables: Iceberg keeps no other metadata of fields."""


def evolve(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The columns of both, of types that hold the values of both."""
    kinds = {each.name: each.type for each in old}
    for each in new:
        kinds[each.name] = _widest(kinds[each.name], each.type) if each.name in kinds else each.type
    return pa.schema(list(kinds.items()))


def _widest(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    if old == new:
        return old
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        both = evolve(pa.schema(list(old)), pa.schema(list(new)))
        return pa.struct(list(both))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return list_of(_widest(old.value_type, new.value_type))
    if {old, new} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return JSON


def marked(schema: pa.Schema, mark: Mapping[str, str]) -> pa.Schema:
    """The columns as they are stored: JSON is text, and its field has metadata that says so.

    Args:
        schema: with JSON, also in structs.
        mark: the metadata, as `DOC`.
    """
    return pa.schema([_marked(each, mark) for each in schema])


def _marked(field: pa.Field, mark: Mapping[str, str]) -> pa.Field:
    if field.type == JSON:
        return pa.field(field.name, pa.string(), metadata=dict(mark))
    return pa.field(field.name, _stored(field.type, mark))


def _stored(kind: pa.DataType, mark: Mapping[str, str]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_marked(each, mark) for each in kind])
    return pa.list_(_stored(kind.value_type, mark)) if pa.types.is_list(kind) else kind
