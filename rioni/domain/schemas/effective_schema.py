"""Effective schemas, against which events are validated, metadata included (reference schemas#effective-schema)."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import jsonschema_rs

from rioni.domain.errors import Invalid
from rioni.domain.schemas import strict_json
from rioni.domain.schemas.keywords import (
    COMPOSITIONS,
    FORMATS_SINCE,
    ITEM_KEYWORDS,
    compositions,
    declared_types,
    is_closed,
)
from rioni.domain.schemas.patterns import PATTERNS, UUID, options_for
from rioni.domain.schemas.walker import reachable, resolve, walk
from rioni.domain.timestamps import DATE_TIME


Schema = dict[str, Any]
Validator = type[jsonschema_rs.Validator]
_DRAFT_4: Validator = jsonschema_rs.Draft4Validator
_DRAFTS: Mapping[str, Validator] = {
    "http://json-schema.org/draft-04/schema": _DRAFT_4,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}


DRAFT_NUMBERS: Mapping[Validator, int] = dict(zip(_DRAFTS.values(), (4, 6, 7), strict=True))
_NEVER = 8
"""A draft that is not supported."""


class EffectiveSchema(NamedTuple):
    """The schema that events are validated against."""

    document: Schema
    draft: Validator
    has_metadata: bool = False
    """Whether events have metadata as the contract defines it: with category `business` and `data`."""
    patterns: int = 0
    """How many different patterns the submitted schema has; they share the memory for compiled ones."""

    def compile(self) -> jsonschema_rs.Validator:
        """Compile the schema: no reference is ever fetched, every pattern runs in linear time.

        Raises:
            ValueError: it is not valid; can't happen after `check_schema`.
        """
        return self._compile(self.document)

    def compile_for_batch(self) -> jsonschema_rs.Validator:
        """Compile a schema for arrays of events."""
        return self._compile({"items": _moved(deepcopy(self.document), "#/items")})

    def _compile(self, document: Schema) -> jsonschema_rs.Validator:
        return self.draft(
            document,
            offline=True,
            validate_formats=True,
            pattern_options=options_for(self.patterns),
        )


def draft_of(schema: Mapping[str, Any]) -> Validator:
    """The validator of the draft that a schema names; by default that of draft 4.

    Raises:
        Invalid: the broker does not know that draft.
    """
    url = schema.get("$schema", "http://json-schema.org/draft-04/schema")
    for prefix, draft in _DRAFTS.items():
        if isinstance(url, str) and url.startswith(prefix):
            return draft
    raise Invalid(f"could not determine schema version: no meta-schema is known with URL [{url}]")


def patterns_in(schema: Schema) -> set[str]:
    """All different patterns of a schema."""
    found: set[str] = set()
    for _, node in walk(schema):
        keyed = node.get("patternProperties")
        found.update(keyed if isinstance(keyed, dict) else ())
        if isinstance(pattern := node.get("pattern"), str):
            found.add(pattern)
    return found


_EID = {"type": "string", "pattern": UUID}
_STRING = {"type": "string"}


def effective_schema(
    text: str, *, name: str, category: str, compatibility_mode: str, cleanup_policy: str
) -> EffectiveSchema:
    """The schema that events are validated against, from one that `check_schema` has accepted; same arguments.

    Differences from the text of reference schemas#effective-schema, which would contradict itself:

    - With category `data` references are moved along with the user's schema; definitions stay where they are.
    - With category `business` a root that is a reference is replaced by its target, so that `metadata` is required.
    - Mode `none` (reference schemas#closed-objects) closes objects that state neither `additionalProperties` nor
    `patternProperties`, except parts
      of combined schemas: none of these knows the properties that the others declare.
    """
    schema = strict_json.decode(text)
    draft, patterns = draft_of(schema), len(patterns_in(schema))
    if category == "business":
        schema = _without_root_reference(schema)
    if compatibility_mode == "compatible":
        for _, node in list(walk(schema)):
            _close(node)
    elif compatibility_mode == "none":
        _close_what_is_not_combined(schema)
    schema = neutral(schema, draft)
    metadata = _metadata_schema(name, cleanup_policy)
    if category == "business":
        schema["type"] = "object"
        schema["properties"] = {**schema.get("properties", {}), "metadata": metadata}
        schema["required"] = [*schema.get("required", ()), *({"metadata"} - set(schema.get("required", ())))]
    elif category == "data":
        schema = _data_schema(schema, metadata)
    return EffectiveSchema(schema, draft, has_metadata=category != "undefined", patterns=patterns)


def _metadata_schema(name: str, cleanup_policy: str) -> Schema:
    compacted = cleanup_policy != "delete"
    key = {"partition_compaction_key": {"type": "string", "minLength": 1}} if compacted else {}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["eid", "occurred_at", *key],
        "properties": {
            "occurred_at": {"type": "string", "pattern": DATE_TIME},
            "eid": _EID,
            "event_type": {"type": "string", "enum": [name]},
            "partition": _STRING,
            "parent_eids": {"type": "array", "items": _EID},
            "flow_id": _STRING,
            "span_ctx": {"type": "object", "additionalProperties": _STRING},
            **key,
        },
    }


def _moved(schema: Schema, pointer: str) -> Schema:
    """Let the references of a schema follow it to another place; changes the schema."""
    for _, node in list(walk(schema)):
        if isinstance(reference := node.get("$ref"), str):
            node["$ref"] = f"{pointer}{reference[1:]}"
    return schema


def _data_schema(schema: Schema, metadata: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["metadata", "data_op", "data_type", "data"],
        "properties": {
            "metadata": metadata,
            "data_type": _STRING,
            "data_op": {"type": "string", "enum": ["C", "U", "D", "S"]},
            "data": _moved(schema, "#/properties/data"),
        },
    }


def _without_root_reference(schema: Schema) -> Schema:
    """Replace a root that is a reference by a copy of its target; this ends, as `check_schema` refuses cycles."""
    root = schema
    while isinstance(reference := root.get("$ref"), str):
        root = deepcopy(resolve(schema, reference))
    return schema if root is schema else {**{key: schema[key] for key in schema if key != "$ref"}, **root}


def neutral(schema: Schema, draft: Validator = _DRAFT_4) -> Schema:
    """A copy that validates the same, written for the library.

    Base URIs are gone: all references are from the root. Formats that the library knows otherwise, or not at all, are
    patterns, and those that the draft has not are gone. An empty `required`, which draft 4 forbids and the contract
    tolerates, is gone. A closed object has `properties`, if none: without them the library does not report which ones
    it did not expect.
    """
    schema, number = deepcopy(schema), DRAFT_NUMBERS[draft]
    for _, node in list(walk(schema)):
        for keyword in ("id", "$id", "$schema"):
            if isinstance(node.get(keyword), str):
                del node[keyword]
        if node.get("required") == []:
            del node["required"]
        if node.get("additionalProperties") is False:
            node.setdefault("properties", {})
        if not isinstance(format_name := node.get("format"), str):
            continue
        if FORMATS_SINCE.get(format_name, _NEVER) > number:
            del node["format"]
        elif format_name in PATTERNS:
            del node["format"]
            node["allOf"] = [*node.get("allOf", ()), {"pattern": PATTERNS[format_name]}]
    return schema


def _close(node: Schema) -> None:
    """Let a schema object accept nothing that it does not declare (reference schemas#effective-schema)."""
    if is_closed(node):
        node["additionalProperties"] = False
    if "array" in declared_types(node) or not ITEM_KEYWORDS.isdisjoint(node):
        node["additionalItems"] = False


def _close_what_is_not_combined(schema: Schema) -> None:
    nodes = [node for _, node in walk(schema)]
    members = [
        member
        for node in nodes
        for keyword in (*COMPOSITIONS, "not", "if", "then", "else")
        for member in (node[keyword] if isinstance(node.get(keyword), list) else [node.get(keyword)])
        if isinstance(member, dict)
    ]
    combined = reachable(members, schema)
    for node in nodes:
        stated = "additionalProperties" in node or "patternProperties" in node
        if is_closed(node) and not stated and id(node) not in combined and not compositions(node):
            node["additionalProperties"] = False
