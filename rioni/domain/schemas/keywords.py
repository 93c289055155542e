"""Normalises the keywords of a JSON schema for comparison, and determines the kind of schema that they make."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from jsonschema_rs.canonical.json import to_string

from rioni.domain.schemas import strict_json


Node: TypeAlias = Mapping[str, Any]

COMPOSITIONS = ("allOf", "anyOf", "oneOf")
TYPES = frozenset(("string", "integer", "number", "boolean", "null", "array", "object"))
"""The types of values; `number` has a fraction, `integer` has none."""
_NUMBERS = frozenset(("integer", "number"))
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    # Keywords by the type that they constrain.
    "array": ("maxItems", "minItems", "uniqueItems"),
    "object": ("maxProperties", "minProperties"),
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
    "string": ("maxLength", "minLength", "pattern", "format", "contentEncoding", "contentMediaType"),
}
_STRUCTURE: Mapping[str, tuple[str, ...]] = {
    "array": ("items", "additionalItems", "contains"),
    "object": ("properties", "required", "dependencies", "patternProperties", "additionalProperties", "propertyNames"),
}
_ABOUT = {group: frozenset((*ATTRIBUTES[group], *_STRUCTURE.get(group, ()))) for group in ATTRIBUTES}
_MEMBER_KEYWORDS = frozenset(("properties", "required", "minProperties", "maxProperties"))
ITEM_KEYWORDS = frozenset(("items", "minItems", "maxItems", "uniqueItems"))
_SHAPE_KEYWORDS = ITEM_KEYWORDS | {"type", "$ref", *COMPOSITIONS}

CONSTRAINS_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("minItems", "minProperties", "minLength"), 0),
    **dict.fromkeys(("uniqueItems", "exclusiveMaximum", "exclusiveMinimum"), False),
}
# Keywords that older drafts ignore, by the draft that begins to enforce them.
KEYWORDS_SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames", "contentEncoding", "contentMediaType"), 6),
    **dict.fromkeys(("if", "then", "else"), 7),
}
FORMATS_SINCE = {
    **dict.fromkeys(("date-time", "uri", "email", "ipv4", "ipv6", "hostname", "iso-4217", "ISO-4217"), 4),
    **dict.fromkeys(("uri-reference", "uri-template", "json-pointer"), 6),
    **dict.fromkeys(("date", "time", "regex", "idn-email", "idn-hostname", "iri", "iri-reference"), 7),
    "relative-json-pointer": 7,
}


class SchemaSide:
    """One side: a whole schema, which its references look into."""

    def __init__(self, text: str) -> None:
        self.root = strict_json.decode(text)
        dialect = str(self.root.get("$schema"))
        self.draft = next((draft for draft in (6, 7) if f"draft-0{draft}" in dialect), 4)

    @property
    def has_integers_with_a_point(self) -> bool:
        """Whether 1.0 is an integer."""
        return self.draft > 4  # noqa: PLR2004 - the draft

    def view(self, schema: Any) -> Node:
        """The effective keywords: a boolean schema becomes equivalent keywords; a reference hides all others."""
        if not isinstance(schema, dict):
            return {"not": {}} if schema is False else {}
        if isinstance(reference := schema.get("$ref"), str):
            return {"$ref": reference}
        return {keyword: value for keyword, value in schema.items() if not self._ignores(keyword, value)}

    def _ignores(self, keyword: str, value: Any) -> bool:
        if keyword == "format":
            return FORMATS_SINCE.get(str(value), 8) > self.draft
        return KEYWORDS_SINCE.get(keyword, 4) > self.draft


def kind_of(node: Node) -> str:
    """The kind of a schema, the first of these that applies; integers are numbers."""
    if "$ref" in node:
        return "reference"
    for keyword in ("enum", "const"):
        if keyword in node:
            return keyword
    declared = declared_types(node)
    if compositions(node) or len(declared) > 1:
        return "combined"
    if declared:
        return "number" if declared[0] in _NUMBERS else declared[0]
    if groups := [group for group in ATTRIBUTES if speaks_of(node, group)]:
        return " or ".join(groups)
    return "not" if "not" in node else "conditional" if "if" in node else "empty"


def speaks_of(node: Node, type_name: str) -> bool:
    """Whether some keyword is about values of a type."""
    group = "number" if type_name in _NUMBERS else type_name
    return not _ABOUT.get(group, frozenset()).isdisjoint(node)


def compositions(node: Node) -> tuple[str, ...]:
    """The keywords that combine schemas."""
    return tuple(method for method in COMPOSITIONS if method in node)


def declared_types(node: Node) -> Sequence[str]:
    """The types that the schema states; none if it states none."""
    declared = node.get("type", ())
    return [declared] if isinstance(declared, str) else declared


def permitted_types(node: Node) -> frozenset[str]:
    """The permitted types; numbers include integers."""
    declared = frozenset(declared_types(node)) or TYPES
    return declared | _NUMBERS if "number" in declared else declared


def is_closed(node: Node) -> bool:
    """Whether mode compatible forbids members that this schema does not declare.

    Source: reference schemas#effective-schema.
    """
    if "object" in declared_types(node) or not _MEMBER_KEYWORDS.isdisjoint(node):
        return True
    return _SHAPE_KEYWORDS.isdisjoint(node)


def without(node: Node, *keywords: str) -> Node:
    """A schema less some keywords."""
    return {keyword: value for keyword, value in node.items() if keyword not in keywords}


def enumerated_values(node: Node, keyword: str) -> frozenset[str]:
    """The values that a schema enumerates and its type permits, as text: 1 and 1.0 are the same."""
    values = node["enum"] if keyword == "enum" else [node["const"]]
    permitted = permitted_types(node)
    return frozenset(to_string(value) for value in values if type_of(value) in permitted)


def type_of(value: Any) -> str:
    """The type of a decoded JSON value; `number` has a fraction, `integer` has none."""
    if isinstance(value, float) and value.is_integer():
        return "integer"  # An event that has 1 equals an enumerated 1.0.
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")
