"""The types of columns by an Avro schema, of its values as they are in JSON (reference schemas#avro-data-as-json).

Logical types are as what they are based on: `timestamp-millis` is an integer of milliseconds.
"""

from typing import Any, NamedTuple

import pyarrow as pa

from rioni.lake.column_types import DEPTH_MAX, FIELDS_MAX, JSON, affords, distinct, list_of


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
    """The type of a schema; JSON where it is open."""
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
