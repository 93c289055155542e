"""Avro schemas as JSON schemas of the same values in JSON, as brokers deliver them."""

from collections.abc import Mapping
from typing import Any


_PRIMITIVES: Mapping[str, str] = {
    "null": "null",
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bytes": "string",
    "string": "string",
}


def to_json_schema(schema: Any) -> dict[str, Any]:
    """The JSON schema of a record, with its named types as definitions.

    Unions are plain values, `bytes` and `fixed` texts, logical types the numbers or texts below them.

    Raises:
        ValueError: this is no schema of Avro.
    """
    definitions: dict[str, Any] = {}
    root = _converted(schema, "", definitions)
    return {**root, "definitions": definitions}


def _converted(schema: Any, namespace: str, definitions: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema, list):
        return {"anyOf": [_converted(branch, namespace, definitions) for branch in schema]}
    if isinstance(schema, str):
        return _named(schema, namespace, definitions)
    if not isinstance(schema, Mapping):
        raise ValueError(f"{schema!r} is no type of Avro")  # noqa: TRY004 - as of every schema that is none
    kind = schema.get("type")
    match kind:
        case "array":
            return {"type": "array", "items": _converted(schema.get("items"), namespace, definitions)}
        case "map":
            return {"type": "object", "additionalProperties": _converted(schema.get("values"), namespace, definitions)}
        case "record" | "error" | "enum" | "fixed":
            return _define(schema, kind, namespace, definitions)
    return _converted(kind, namespace, definitions)


def _define(schema: Mapping[str, Any], kind: str, namespace: str, definitions: dict[str, Any]) -> dict[str, Any]:
    name = _full_name(str(schema.get("name", "")), str(schema.get("namespace", namespace)))
    namespace = name.rpartition(".")[0]
    made: dict[str, Any] = {"description": schema.get("doc")}
    definitions[name] = made
    if kind == "enum":
        made["enum"] = list(schema.get("symbols", ()))
    elif kind == "fixed":
        made["type"] = "string"
    else:
        fields = [field for field in schema.get("fields", ()) if isinstance(field, Mapping)]
        made["type"] = "object"
        made["required"] = [field["name"] for field in fields]
        made["properties"] = {
            field["name"]: _converted(field.get("type"), namespace, definitions) | _documented(field)
            for field in fields
        }
    return {"$ref": f"#/definitions/{name}"}


def _documented(field: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": field["doc"]} if "doc" in field else {}


def _named(name: str, namespace: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    if name in _PRIMITIVES:
        return {"type": _PRIMITIVES[name]}
    for full in (_full_name(name, namespace), name):
        if full in definitions:
            return {"$ref": f"#/definitions/{full}"}
    raise ValueError(f"{name} is no type of Avro")


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
