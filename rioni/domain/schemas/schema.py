"""Checks submitted JSON schemas, and builds the effective schema that events are validated against.

Source: reference schemas#effective-schema, schemas#schema-checks.

Schemas are untrusted: size, nesting, patterns and validation cost are bounded before they are used.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple

import jsonschema_rs

from rioni.domain.errors import Invalid
from rioni.domain.event_types.field_path import DeclaredPaths, FieldPath, TooMuchToLookFor, parse_path
from rioni.domain.schemas import strict_json
from rioni.domain.schemas.formats import DATE_TIME, PATTERNS, UUID
from rioni.domain.schemas.patterns import PATTERN_BYTES_MAX, PATTERNS_BYTES_MAX, PATTERNS_MAX, options_for
from rioni.domain.schemas.strict_json import JsonError
from rioni.domain.schemas.walker import Pointer, SchemaCycle, expanded_paths, reachable, resolve, walk


SCHEMA_BYTES_MAX = 256 * 1024
SCHEMA_DEPTH_MAX = 64
SCHEMA_OBJECTS_MAX = 5_000
"""PERF: the library compiles so many in 15 ms, and has to do so before the first event of a version."""
FORMAT_OBJECTS = 4
"""A format that we turn into a pattern takes as long as so many others."""
EXPANDED_PATHS_MAX = 100_000
POINTERS_CHARACTERS_MAX = 5_000_000
"""All pointers to schema objects together: the library writes out each of them. PERF: 800 MB of pointers, which fit
into 170 kB of schema, took it five seconds; this takes 30 ms."""
KEYWORDS_NAMED_MAX = 100
TEXT_CHARACTERS_MAX = 500
"""Maximum length of quotations from a schema in messages."""

Schema = dict[str, Any]
_Validator = type[jsonschema_rs.Validator]
_DRAFT_4: _Validator = jsonschema_rs.Draft4Validator
_DRAFTS: Mapping[str, _Validator] = {
    "http://json-schema.org/draft-04/schema": _DRAFT_4,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}


class EffectiveSchema(NamedTuple):
    """The schema that events are validated against."""

    document: Schema
    draft: _Validator
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


def check_schema(
    text: str, *, name: str, category: str, compatibility_mode: str, cleanup_policy: str = "delete"
) -> EffectiveSchema:
    """Check a submitted JSON schema.

    Args:
        text: the schema as submitted.
        name: the event type's name.
        category: `undefined`, `data` or `business`.
        compatibility_mode: `compatible`, `forward` or `none`.
        cleanup_policy: `delete`, `compact` or `compact_and_delete`.

    Returns:
        The effective schema, for `check_paths`.

    Raises:
        Invalid: the first rule of reference schemas#schema-checks that it breaks.
    """
    schema = _parse(text)
    if schema.get("type", "object") != "object":
        raise Invalid('"type" of root element in schema can only be "object"')
    draft = _draft(schema)
    _check_objects(schema)
    patterns = _check_patterns(schema)
    _check_compiles(schema, draft, patterns)
    _check_work(schema)
    if category == "business" and "metadata" in schema.get("properties", {}):
        raise Invalid('"metadata" property is reserved')
    if compatibility_mode == "compatible":
        _check_keywords(schema)
    return effective_schema(
        text, name=name, category=category, compatibility_mode=compatibility_mode, cleanup_policy=cleanup_policy
    )


def check_paths(declared: DeclaredPaths, field: str, paths: Sequence[str], *, within: str = "") -> None:
    """Check that the schema declares all paths.

    Args:
        declared: the paths of the document that `check_schema` has returned; the same for all lists of a definition.
        field: where the paths stand, such as `ordering_key_fields`.
        paths: dotted paths.
        within: `data` where they are relative to that member.

    Raises:
        Invalid: names those that the schema does not declare, or says that looking for them takes too long.
    """
    prefix = (within,) if within else ()
    try:
        absent = [path for path in paths if not declared.declares(FieldPath(prefix + parse_path(path).segments))]
    except TooMuchToLookFor as ex:
        raise Invalid(
            f"{field} can't be looked for in the schema, because that would take too long: name fewer or shorter "
            "paths, or combine fewer schemas and patterns"
        ) from ex
    if absent:
        raise Invalid(f"{field} [{', '.join(absent)}] absent in schema")


# --- what a schema may contain ---


def _parse(text: str) -> Schema:
    size = len(text.encode(errors="surrogatepass"))
    if size > SCHEMA_BYTES_MAX:
        raise Invalid(f"schema must be a valid json-schema: {size} bytes, max size is {SCHEMA_BYTES_MAX} bytes")
    try:
        schema = strict_json.decode(text)
    except JsonError as ex:
        raise Invalid(f"schema must be a valid json: {ex}") from ex
    if not isinstance(schema, dict):
        raise Invalid("schema must be a valid json: it is not an object")
    if strict_json.depth(schema) > SCHEMA_DEPTH_MAX:
        raise Invalid(f"schema must be a valid json-schema: more than {SCHEMA_DEPTH_MAX} nested objects and arrays")
    return schema


def _draft(schema: Mapping[str, Any]) -> _Validator:
    url = schema.get("$schema", "http://json-schema.org/draft-04/schema")
    for prefix, draft in _DRAFTS.items():
        if isinstance(url, str) and url.startswith(prefix):
            return draft
    raise Invalid(f"could not determine schema version: no meta-schema is known with URL [{url}]")


def _check_objects(schema: Schema) -> None:
    """Check references, patterns and the number of schema objects: all that needs no valid schema."""
    count = characters = 0
    try:
        for pointer, node in walk(schema):
            count += FORMAT_OBJECTS if str(node.get("format")) in PATTERNS else 1
            characters += pointer.characters
    except LookupError as ex:
        reference = str(ex.args[0])
        if not reference.startswith("#"):
            raise Invalid(f"external url reference is not supported: {reference}") from ex
        raise Invalid(f"schema must be a valid json-schema: reference {reference} points nowhere") from ex
    if count > SCHEMA_OBJECTS_MAX:
        raise Invalid(
            f"schema must be a valid json-schema: it consists of {count} schemas, at most {SCHEMA_OBJECTS_MAX} can be"
        )
    if characters > POINTERS_CHARACTERS_MAX:
        raise Invalid(
            "schema must be a valid json-schema: too many nested schemas with long names: the JSON pointers have "
            f"{characters} characters, at most {POINTERS_CHARACTERS_MAX} are allowed"
        )


def _check_patterns(schema: Schema) -> int:
    """Check the lengths of all patterns together, and count the different ones."""
    sizes = {pattern: len(pattern.encode()) for pattern in _patterns(schema)}
    for pattern, size in sizes.items():
        if size > PATTERN_BYTES_MAX:
            raise Invalid(
                f'invalid regex pattern in the schema: longer than {PATTERN_BYTES_MAX} bytes "{pattern[:100]}..."'
            )
    total = sum(sizes.values())
    if len(sizes) > PATTERNS_MAX or total > PATTERNS_BYTES_MAX:
        raise Invalid(
            f"invalid regex pattern in the schema: {len(sizes)} different ones of {total} bytes, at most "
            f"{PATTERNS_MAX} of {PATTERNS_BYTES_MAX} bytes can be"
        )
    return len(sizes)


def _patterns(schema: Schema) -> set[str]:
    found: set[str] = set()
    for _, node in walk(schema):
        keyed = node.get("patternProperties")
        found.update(keyed if isinstance(keyed, dict) else ())
        if isinstance(pattern := node.get("pattern"), str):
            found.add(pattern)
    return found


def _check_compiles(schema: Schema, draft: _Validator, patterns: int) -> None:
    try:
        EffectiveSchema(_neutral(schema), draft, patterns=patterns).compile()
    except jsonschema_rs.ValidationError as ex:
        if _is_about_a_pattern(ex):
            complaint = "malformed, unsupported or too large"
            raise Invalid(f'invalid regex pattern in the schema: {complaint} "{ex.instance}"') from ex
        where = "".join(f"/{segment}" for segment in ex.instance_path)
        raise Invalid(f"schema must be a valid json-schema: #{where}: {ex.message}") from ex
    except ValueError as ex:
        raise Invalid(f"schema must be a valid json-schema: {ex}") from ex


def _is_about_a_pattern(error: jsonschema_rs.ValidationError) -> bool:
    path = error.instance_path
    return error.kind.name in ("format", "pattern") and ("pattern" in path[-1:] or "patternProperties" in path[-2:])


def _check_work(schema: Schema) -> None:
    try:
        paths = expanded_paths(schema, enough=EXPANDED_PATHS_MAX)
    except SchemaCycle as ex:
        raise Invalid("schema must be a valid json-schema: references form a cycle") from ex
    if paths > EXPANDED_PATHS_MAX:
        raise Invalid(
            "schema must be a valid json-schema: references and combined schemas expand to more than "
            f"{EXPANDED_PATHS_MAX} schemas"
        )


_COMPATIBLE_KEYWORDS = frozenset(
    (  # noqa: SIM905 - a list of thirty lines reads worse
        "id $schema $ref title description default multipleOf maximum exclusiveMaximum minimum exclusiveMinimum "
        "maxLength minLength pattern items maxItems minItems uniqueItems maxProperties minProperties required "
        "definitions properties dependencies enum type format allOf anyOf oneOf "
    ).split()
)


def _check_keywords(schema: Schema) -> None:
    """Check that only the keywords of mode `compatible` are used.

    Source: reference schemas#compatible-keywords: the manual's list.
    """
    reasons = [
        f"Invalid schema found in [{_cut(str(pointer))}]: extraneous key [{_cut(keyword)}] is not permitted"
        for pointer, keyword in islice(_foreign_keywords(schema), KEYWORDS_NAMED_MAX)
    ]
    if reasons:
        raise Invalid(f"Invalid schema: {', '.join(reasons)}")


def _foreign_keywords(schema: Schema) -> Iterator[tuple[Pointer, str]]:
    for pointer, node in walk(schema):
        yield from ((pointer, keyword) for keyword in node if keyword not in _COMPATIBLE_KEYWORDS)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."


# --- the effective schema ---


_EID = {"type": "string", "pattern": UUID}
_STRING = {"type": "string"}


def effective_schema(
    text: str, *, name: str, category: str, compatibility_mode: str, cleanup_policy: str
) -> EffectiveSchema:
    """The schema that events are validated against, from one that `check_schema` has accepted; same arguments.

    Differences from the letter of reference schemas#effective-schema, where that would contradict itself:

    - With category `data` references are moved along with the user's schema; definitions stay where they are.
    - With category `business` a root that is a reference is replaced by its target, so that `metadata` is required.
    - Mode `none` (reference schemas#closed-objects) closes objects that state neither `additionalProperties` nor
    `patternProperties`, except parts
      of combined schemas: none of these knows the properties that the others declare.
    """
    schema = strict_json.decode(text)
    draft, patterns = _draft(schema), len(_patterns(schema))
    if category == "business":
        schema = _without_root_reference(schema)
    if compatibility_mode == "compatible":
        for _, node in list(walk(schema)):
            _close(node)
    elif compatibility_mode == "none":
        _close_what_is_not_combined(schema)
    schema = _neutral(schema)
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


def _neutral(schema: Schema) -> Schema:
    """A copy that validates the same, written for the library.

    Base URIs are gone: all references are from the root. Formats that the library knows otherwise, or not at all, are
    patterns. An empty `required`, which draft 4 forbids and the contract tolerates, is gone. A closed object has
    `properties`, if none: without them the library does not say which ones it did not expect.
    """
    schema = deepcopy(schema)
    for _, node in list(walk(schema)):
        for keyword in ("id", "$id", "$schema"):
            if isinstance(node.get(keyword), str):
                del node[keyword]
        if node.get("required") == []:
            del node["required"]
        if node.get("additionalProperties") is False:
            node.setdefault("properties", {})
        if isinstance(format_name := node.get("format"), str) and format_name in PATTERNS:
            del node["format"]
            node["allOf"] = [*node.get("allOf", ()), {"pattern": PATTERNS[format_name]}]
    return schema


_OBJECT_KEYWORDS = frozenset({"properties", "required", "minProperties", "maxProperties"})
_ARRAY_KEYWORDS = frozenset({"items", "minItems", "maxItems", "uniqueItems"})
_COMBINING_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf"})
_SHAPE_KEYWORDS = _OBJECT_KEYWORDS | _ARRAY_KEYWORDS | _COMBINING_KEYWORDS | {"type", "$ref"}


def _close(node: Schema) -> None:
    """Let a schema object accept nothing that it does not declare (reference schemas#effective-schema)."""
    if _is_for(node, "object", _OBJECT_KEYWORDS) or _SHAPE_KEYWORDS.isdisjoint(node):
        node["additionalProperties"] = False
    if _is_for(node, "array", _ARRAY_KEYWORDS):
        node["additionalItems"] = False


def _is_for(node: Mapping[str, Any], type_name: str, keywords: frozenset[str]) -> bool:
    types = node.get("type")
    return types == type_name or (isinstance(types, list) and type_name in types) or not keywords.isdisjoint(node)


def _close_what_is_not_combined(schema: Schema) -> None:
    nodes = [node for _, node in walk(schema)]
    members = [
        member
        for node in nodes
        for keyword in (*_COMBINING_KEYWORDS, "not", "if", "then", "else")
        for member in (node[keyword] if isinstance(node.get(keyword), list) else [node.get(keyword)])
        if isinstance(member, dict)
    ]
    combined = reachable(members, schema)
    for node in nodes:
        closable = _is_for(node, "object", _OBJECT_KEYWORDS) or _SHAPE_KEYWORDS.isdisjoint(node)
        stated = "additionalProperties" in node or "patternProperties" in node
        if closable and not stated and id(node) not in combined and _COMBINING_KEYWORDS.isdisjoint(node):
            node["additionalProperties"] = False
