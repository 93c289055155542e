"""The columns of an event type: Arrow types by its schema, events as rows, and the union of two versions.

What a schema leaves open (several types, `oneOf`, no properties) is a column of text with the value as JSON.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa

from rioni.domain.errors import Invalid


COLUMNS_MAX = 1_000
DEPTH_MAX = 8
FIELDS_MAX = 5_000
"""In all structs together; references could make them many. What is beyond is text."""
PARTITION, OFFSET, CORRUPT = "_partition", "_offset", "_corrupt"
REST = "_rest"
"""The members of an event that no column has, as JSON."""

_TEXTS = ("eid", "event_type", "occurred_at", "received_at", "version", "published_by", "flow_id", "partition")
_METADATA = pa.struct(
    [
        *((name, pa.string()) for name in (*_TEXTS, "partition_compaction_key", "span_ctx")),
        ("partition_keys", pa.list_(pa.string())),
        ("parent_eids", pa.list_(pa.string())),
    ]
)
_OWN = {PARTITION: pa.string(), OFFSET: pa.string(), CORRUPT: pa.string()}
_JSON_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_AVRO_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
}
_COMBINED = {"$ref", "allOf", "anyOf", "oneOf", "not", "if"}
_INT64 = range(-(2**63), 2**63)


class Misfit(ValueError):
    """A value does not fit its column; the text names both."""


def event_schema(kind: str, schema: str, category: str) -> pa.Schema:
    """The columns of an event type, and `_partition`, `_offset` and `_corrupt`.

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
    payload = _json_root(parsed) if kind == "json_schema" else _avro_type(parsed, 0)
    fields: dict[str, pa.DataType] = {}
    if category == "data":
        fields |= {"data_type": pa.string(), "data_op": pa.string(), "data": payload}
    elif pa.types.is_struct(payload):
        fields |= {each.name: each.type for each in payload}
    if category != "undefined":
        fields["metadata"] = _METADATA
    if len(fields) > COLUMNS_MAX:
        raise Invalid(f"The schema has more than {COLUMNS_MAX} fields.")
    return pa.schema(list((fields | _OWN).items()))


def _json_root(schema: Any) -> pa.DataType:
    found = _referenced(schema, schema)
    properties = found.get("properties") if isinstance(found, dict) and not _COMBINED & found.keys() else None
    if not isinstance(properties, dict) or not properties:
        return pa.string()
    budget = iter(range(FIELDS_MAX))
    return pa.struct([(name, _json_type(each, schema, budget, 1)) for name, each in properties.items()])


def _json_type(schema: Any, root: Any, budget: Iterator[int], depth: int) -> pa.DataType:
    schema = _referenced(schema, root)
    if not isinstance(schema, dict) or _COMBINED & schema.keys() or depth > DEPTH_MAX:
        return pa.string()
    properties, kinds = schema.get("properties"), schema.get("type", "object" if "properties" in schema else None)
    named = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each != "null"]
    if len(named) != 1:
        return pa.string()
    if named[0] == "object" and isinstance(properties, dict) and _distinct(properties) and _affords(budget, properties):
        return pa.struct([(name, _json_type(each, root, budget, depth + 1)) for name, each in properties.items()])
    if named[0] == "array" and isinstance(schema.get("items"), dict):
        return pa.list_(_json_type(schema["items"], root, budget, depth + 1))
    return _JSON_TYPES.get(str(named[0]), pa.string())


def _referenced(schema: Any, root: Any) -> Any:
    """What a schema refers to within the same document, through a few steps; itself where it is no such reference."""
    for _ in range(DEPTH_MAX):
        pointer = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(pointer, str) or not pointer.startswith("#/"):
            break
        schema = root
        for step in pointer[2:].split("/"):
            schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
    return schema


def _affords(budget: Iterator[int], names: Collection[str]) -> bool:
    return len(list(islice(budget, len(names)))) == len(names)


def _distinct(names: Collection[str]) -> bool:
    """Whether there are names, all of them different for engines that ignore their case."""
    return 0 < len(names) == len({each.lower() for each in names})


def _avro_type(schema: Any, depth: int) -> pa.DataType:
    if isinstance(schema, list):
        named = [each for each in schema if each != "null"]
        return _avro_type(named[0], depth) if len(named) == 1 else pa.string()
    if isinstance(schema, str):
        return _AVRO_TYPES.get(schema, pa.string())
    kind = schema.get("type")
    if depth > DEPTH_MAX or "logicalType" in schema:
        return pa.string()
    if kind == "record" and schema.get("fields"):
        return pa.struct([(each["name"], _avro_type(each["type"], depth + 1)) for each in schema["fields"]])
    if kind == "array":
        return pa.list_(_avro_type(schema["items"], depth + 1))
    return _avro_type(kind, depth + 1) if kind in _AVRO_TYPES or isinstance(kind, dict | list) else pa.string()


def record_batch(schema: pa.Schema, events: Sequence[tuple[str, str, bytes | dict[str, Any]]]) -> pa.RecordBatch:
    """Events as rows: those that do not fit have their JSON in `_corrupt`, and no other values.

    Args:
        schema: with `_partition`, `_offset` and `_corrupt`.
        events: partition, offset, and the event.
    """
    converters = {each.name: _converter(each.type, each.name) for each in schema if each.name not in _OWN}
    columns: dict[str, list[Any]] = {each.name: [] for each in schema}
    for partition, offset, event in events:
        try:
            values = event if isinstance(event, Mapping) else orjson.loads(event)
            row = {name: convert(values.get(name)) for name, convert in converters.items()}
        except ValueError:
            row = dict.fromkeys(converters) | {CORRUPT: event.decode() if isinstance(event, bytes) else _text(event)}
        for name, value in (row | {PARTITION: partition, OFFSET: offset}).items():
            columns[name].append(value)
        if CORRUPT not in row:
            columns[CORRUPT].append(None)
    return pa.record_batch([pa.array(columns[each.name], each.type) for each in schema], schema=schema)


def misfit(schema: pa.Schema, event: bytes) -> str:
    """Why an event does not fit the columns; empty where it does."""
    try:
        values = orjson.loads(event)
        for each in schema:
            if each.name not in _OWN:
                _converter(each.type, each.name)(values.get(each.name))
    except ValueError as ex:
        return str(ex)
    return ""


def _converter(kind: pa.DataType, path: str) -> Callable[[Any], Any]:
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_struct(kind):
        fields = {each.name: _converter(each.type, f"{path}.{each.name}") for each in kind}
        return partial(_struct, fields, path)
    if pa.types.is_list(kind):
        return partial(_list, _converter(kind.value_type, f"{path}[]"), path)
    if pa.types.is_floating(kind):
        return partial(_number, path, str(kind))
    return partial(_scalar, _is_integer if pa.types.is_integer(kind) else _is_boolean, path, str(kind))


def _string(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _text(value)


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()


def _struct(fields: Mapping[str, Callable[[Any], Any]], path: str, value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Misfit(f"{path} is no object")
    return {name: convert(value.get(name)) for name, convert in fields.items()}


def _list(convert: Callable[[Any], Any], path: str, value: Any) -> list[Any] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise Misfit(f"{path} is no array")
    return [convert(each) for each in value]


def _scalar(check: Callable[[Any], bool], path: str, kind: str, value: Any) -> Any:
    if value is not None and not check(value):
        raise Misfit(f"{path} is not of type {kind}: {value!r:.100}")
    return value


def _number(path: str, kind: str, value: Any) -> float | None:
    # Arrow refuses integers that a double does not hold exactly.
    return None if _scalar(_is_number, path, kind, value) is None else float(value)


def _is_integer(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and int(value) in _INT64


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


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
        return pa.list_(_widest(old.value_type, new.value_type))
    if {old, new} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()
