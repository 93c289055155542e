"""Kinds of changes between two JSON schemas, with their compatibility levels.

Source: reference schemas#change-levels, schemas#change-levels.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Self

import msgspec


class Level(IntEnum):
    """Part of the version that a change raises."""

    NO_CHANGES = 0
    PATCH = 1
    MINOR = 2
    MAJOR = 3


class SchemaChange(msgspec.Struct, frozen=True):
    """One difference, with its level in each column of the contract's table."""

    kind: str
    path: str
    """A JSON pointer into the submitted schema, `#/` for its root; after a reference, into the definition."""
    level_forward: Level
    """MAJOR if mode forward forbids the change."""
    level_compatible: Level
    """MAJOR if mode compatible forbids the change. Also the part of the version that it raises, in every mode."""
    message: str

    @classmethod
    def of(cls, kind: str, path: str) -> Self:
        """The change with the levels and the message of its kind."""
        return cls(kind, path, *KINDS[kind])


_PATCH, _MINOR, _MAJOR = Level.PATCH, Level.MINOR, Level.MAJOR

KINDS: Mapping[str, tuple[Level, Level, str]] = {
    "ID_CHANGED": (_MAJOR, _MAJOR, "schema id must not change"),
    "TITLE_CHANGED": (_PATCH, _PATCH, "title changed"),
    "DESCRIPTION_CHANGED": (_PATCH, _PATCH, "description changed"),
    "PROPERTIES_ADDED": (_MINOR, _MINOR, "properties added"),
    "PROPERTY_REMOVED": (_MAJOR, _MAJOR, "schema properties cannot be removed"),
    "TYPE_CHANGED": (_MAJOR, _MAJOR, "schema types must be the same"),
    "TYPE_NARROWED": (_MINOR, _MAJOR, "schema types cannot be narrowed"),
    "REQUIRED_ARRAY_EXTENDED": (_MINOR, _MAJOR, "required array changed"),
    "REQUIRED_ARRAY_CHANGED": (_MAJOR, _MAJOR, "required array changed"),
    "ADDITIONAL_PROPERTIES_CHANGED": (_MAJOR, _MAJOR, "change not allowed"),
    "ADDITIONAL_PROPERTIES_NARROWED": (_MINOR, _MAJOR, "change not allowed"),
    "ADDITIONAL_ITEMS_CHANGED": (_MAJOR, _MAJOR, "change not allowed"),
    "ATTRIBUTE_VALUE_CHANGED": (_MAJOR, _MAJOR, "change to attribute value not allowed"),
    "ENUM_ARRAY_CHANGED": (_MAJOR, _MAJOR, "enum array changed"),
    "SUB_SCHEMA_CHANGED": (_MAJOR, _MAJOR, "sub schema changed"),
    "COMPOSITION_METHOD_CHANGED": (_MAJOR, _MAJOR, "schema composition method changed"),
    "NUMBER_OF_ITEMS_CHANGED": (_MAJOR, _MAJOR, "the number of schema items cannot be changed"),
    "DEPENDENCY_ARRAY_CHANGED": (_MAJOR, _MAJOR, "schema dependencies array cannot be changed"),
    "DEPENDENCY_SCHEMA_CHANGED": (_MAJOR, _MAJOR, "schema dependencies cannot be changed"),
    "DEPENDENCY_SCHEMA_REMOVED": (_MAJOR, _MAJOR, "dependency schema removed"),
    "SCHEMA_REMOVED": (_MAJOR, _MAJOR, "change not allowed"),
    # Two kinds that the original does not have. The first is for constraints whose addition it overlooks: they narrow,
    # as do the other changes that forward mode allows and compatible refuses.
    "CONSTRAINT_ADDED": (_MINOR, _MAJOR, "constraints cannot be added"),
    "NOT_COMPARABLE": (_MAJOR, _MAJOR, "references are too entangled to be compared"),
}
"""The kinds of changes, each with its level in mode forward (and none), its level in mode compatible, and its
message."""
