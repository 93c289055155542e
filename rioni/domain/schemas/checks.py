"""Checks of submitted schemas, and of paths into them (reference schemas#effective-schema)."""

from collections.abc import Sequence
from itertools import islice

import jsonschema_rs

from rioni.domain.errors import Invalid
from rioni.domain.schemas import strict_json
from rioni.domain.schemas.effective_schema import (
    EffectiveSchema,
    Schema,
    Validator,
    draft_of,
    effective_schema,
    neutral,
    patterns_in,
)
from rioni.domain.schemas.field_path import DeclaredPaths, FieldPath, TooMuchToLookFor, parse_path
from rioni.domain.schemas.patterns import PATTERN_BYTES_MAX, PATTERNS, PATTERNS_BYTES_MAX, PATTERNS_MAX, cut
from rioni.domain.schemas.strict_json import JsonError
from rioni.domain.schemas.walker import SchemaCycle, expanded_paths, walk


SCHEMA_BYTES_MAX = 256 * 1024
SCHEMA_DEPTH_MAX = 64
SCHEMA_OBJECTS_MAX = 5_000
"""PERF: the library compiles this many in 15 ms, and has to do so before the first event of a version."""
FORMAT_OBJECTS = 4
"""The number of schema objects that take as long to compile as one format that is turned into a pattern."""
EXPANDED_PATHS_MAX = 100_000
POINTERS_CHARACTERS_MAX = 5_000_000
"""All pointers to schema objects together: the library writes out each of them. PERF: 800 MB of pointers, which fit
into 170 kB of schema, took it five seconds; this takes 30 ms."""
KEYWORDS_NAMED_MAX = 100
TEXT_CHARACTERS_MAX = 500
"""Maximum length of quotations from a schema in messages."""


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
    draft = draft_of(schema)
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
        field: the field that contains the paths, such as `ordering_key_fields`.
        paths: dotted paths.
        within: `data` if they are relative to that member.

    Raises:
        Invalid: the schema does not declare some, which the message names, or looking for them takes too long.
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
    sizes = {pattern: len(pattern.encode()) for pattern in patterns_in(schema)}
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


def _check_compiles(schema: Schema, draft: Validator, patterns: int) -> None:
    try:
        EffectiveSchema(neutral(schema, draft), draft, patterns=patterns).compile()
    except jsonschema_rs.ValidationError as ex:
        path = ex.instance_path
        if ex.kind.name in ("format", "pattern") and ("pattern" in path[-1:] or "patternProperties" in path[-2:]):
            problem = "malformed, unsupported or too large"
            raise Invalid(f'invalid regex pattern in the schema: {problem} "{ex.instance}"') from ex
        where = "".join(f"/{segment}" for segment in path)
        raise Invalid(f"schema must be a valid json-schema: #{where}: {ex.message}") from ex
    except ValueError as ex:
        raise Invalid(f"schema must be a valid json-schema: {ex}") from ex


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
    foreign = (
        (cut(str(pointer), TEXT_CHARACTERS_MAX), cut(keyword, TEXT_CHARACTERS_MAX))
        for pointer, node in walk(schema)
        for keyword in node
        if keyword not in _COMPATIBLE_KEYWORDS
    )
    reasons = [
        f"Invalid schema found in [{pointer}]: extraneous key [{keyword}] is not permitted"
        for pointer, keyword in islice(foreign, KEYWORDS_NAMED_MAX)
    ]
    if reasons:
        raise Invalid(f"Invalid schema: {', '.join(reasons)}")
