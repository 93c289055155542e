"""The columns of an event type: Arrow types by its schema, events as rows, and the union of two versions.

Members that a schema leaves open (several types, `oneOf`, no properties) are columns of JSON; members that it does
not declare are in `_rest`.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from rioni.domain.errors import Invalid
from rioni.domain.schemas.walker import resolve


# --- Shared by the columns of JSON and Avro schemas: the type of JSON, and the limit of fields ---

DEPTH_MAX = 8
FIELDS_MAX = 5_000
"""The most fields in all structs together; references could make them many. Fields beyond that are JSON."""
JSON = pa.json_(pa.string())
"""The type of columns whose texts are JSON; they are stored as texts, with a mark."""


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list; if its items are open, all of it is JSON: formats have no mark for items."""
    return JSON if kind == JSON else pa.list_(kind)


def affords(budget: Iterator[int], names: Collection[str]) -> bool:
    """Whether there may be as many fields more."""
    return len(list(islice(budget, len(names)))) == len(names)


def can_name(name: str) -> bool:
    """Whether all formats have columns of this name: Delta cuts it off at U+0000."""
    return name != "" and "\0" not in name


def distinct(names: Collection[str]) -> bool:
    """Whether there are names, all of them possible, and different for engines that ignore their case."""
    return 0 < len(names) == len({each.lower() for each in names if can_name(each)})


# The types of columns by an Avro schema, of its values as they are in JSON (reference schemas#avro-data-as-json).
#
# Logical types have the types that they are based on: `timestamp-millis` is an integer of milliseconds.

_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), pa.string()),
}
_NAMED = ("record", "enum", "fixed")


class _Named(NamedTuple):
    """A definition, and the namespace that its references have."""

    schema: dict[str, Any]
    namespace: str


def avro_type(schema: Any) -> pa.DataType:
    """The type of a schema; JSON if the schema is open."""
    return _Types().of(schema, "", 0)


class _Types:
    def __init__(self) -> None:
        self._known: dict[str, _Named] = {}
        self._budget = iter(range(FIELDS_MAX))

    def of(self, schema: Any, namespace: str, depth: int) -> pa.DataType:
        """The type of a node."""
        if isinstance(schema, list):
            found = [self.of(each, namespace, depth) for each in schema if each != "null"]
            return found[0] if len(found) == 1 else JSON
        if isinstance(schema, dict):
            return self._of_definition(schema, namespace, depth)
        known = self._known.get(f"{namespace}.{schema}") or self._known.get(schema)
        if known is None or schema in _TYPES:
            return _TYPES.get(schema, JSON)
        return JSON if depth > DEPTH_MAX else self._of_definition(known.schema, known.namespace, depth + 1)

    def _of_definition(self, schema: dict[str, Any], namespace: str, depth: int) -> pa.DataType:
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.of(kind, namespace, depth + 1)
        if kind in _NAMED and isinstance(name := schema.get("name"), str):
            full = name if "." in name else ".".join(filter(None, (schema.get("namespace", namespace), name)))
            namespace = full.rpartition(".")[0]
            self._known.setdefault(full, _Named(schema, namespace))
        if kind == "record":
            return self._of_record(schema.get("fields", ()), namespace, depth)
        if kind == "array":
            return list_of(self.of(schema["items"], namespace, depth + 1))
        if kind == "map":
            self.of(schema["values"], namespace, depth + 1)  # may define names
            return JSON
        return self.of(kind, namespace, depth) if kind not in _TYPES else _TYPES[kind]

    def _of_record(self, fields: Any, namespace: str, depth: int) -> pa.DataType:
        names = [each["name"] for each in fields]
        if depth > DEPTH_MAX or not distinct(names) or not affords(self._budget, names):
            return JSON
        return pa.struct([(each["name"], self.of(each["type"], namespace, depth + 1)) for each in fields])


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
    """The schema that another one refers to in the same document, in a few steps; itself if it is no reference."""
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
    """The columns as they are stored: JSON is text, and its field has metadata that mark it.

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
