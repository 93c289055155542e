"""Decides whether a compatibility mode allows a change of a JSON schema, and computes the next version.

Source: reference schemas#change-levels.

Whether a change is allowed is one column of the contract's table, the next version always depends on the column of mode
compatible: following the manual, any change that this mode does not allow makes a new major version (reference
schemas#change-levels).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rioni.domain.errors import Invalid
from rioni.domain.schemas.change import Level, SchemaChange
from rioni.domain.schemas.counterexample import breaking_example
from rioni.domain.schemas.diff import compare
from rioni.domain.texts import first_of


CHANGES_NAMED_MAX = 50
EXAMPLE_CHARACTERS_MAX = 500

UPGRADE_KINDS = frozenset(
    (
        "DESCRIPTION_CHANGED",
        "TITLE_CHANGED",
        "PROPERTIES_ADDED",
        "REQUIRED_ARRAY_EXTENDED",
        "ADDITIONAL_PROPERTIES_CHANGED",
        "ADDITIONAL_ITEMS_CHANGED",
    )
)
"""The kinds of change allowed while an event type goes from mode forward to compatible."""


def evolve_schema(
    *, original: str, submitted: str, original_mode: str, submitted_mode: str, version: str
) -> str | None:
    """Decide on a new JSON schema of an event type.

    Args:
        original: the text of the current schema.
        submitted: the text of the new one; both have passed `check_schema`.
        original_mode: the current compatibility mode.
        submitted_mode: the new one.
        version: the version of the original.

    Returns:
        The version of the submitted schema, None if its text equals the original.

    Raises:
        Invalid: the mode forbids a change; names these changes, and a breaking event if one is known.
    """
    if original == submitted:
        return None
    modes = original_mode, submitted_mode
    changes = compare(original, submitted)
    refused = _refused(changes, *modes)
    event = None
    if refused or modes == ("compatible", "compatible"):
        event = breaking_example(original, submitted, original_mode=original_mode, submitted_mode=submitted_mode)
    if event is not None and not refused:
        # The table allows `{}`, which is closed, after `true`, and a property by which two members of `oneOf` match.
        refused = changes or [SchemaChange.of("TYPE_NARROWED", "#/")]
    if refused:
        raise Invalid(_refusal(refused) + _illustration(event) + _advice(refused))
    return next_schema_version(version, max((change.level_compatible for change in changes), default=Level.PATCH))


def next_schema_version(current: str, level: Level) -> str:
    """The version after `current`, which has the form `major.minor.patch`."""
    major, minor, patch = map(int, current.split("."))
    match level:
        case Level.MAJOR:
            return f"{major + 1}.0.0"
        case Level.MINOR:
            return f"{major}.{minor + 1}.0"
        case Level.PATCH:
            return f"{major}.{minor}.{patch + 1}"
        case Level.NO_CHANGES:
            return current


def _refused(changes: Sequence[SchemaChange], original_mode: str, submitted_mode: str) -> Sequence[SchemaChange]:
    match original_mode, submitted_mode:
        case "none", _:
            return ()
        case "forward", "compatible":
            return [change for change in changes if change.kind not in UPGRADE_KINDS]
        case "forward", _:
            return [change for change in changes if change.level_forward is Level.MAJOR]
        case _:
            return [change for change in changes if change.level_compatible is Level.MAJOR]


def _refusal(changes: Sequence[SchemaChange]) -> str:
    texts = [f"{change.path}: {change.message}" for change in changes]
    return f"Invalid schema: {first_of(texts, CHANGES_NAMED_MAX)}"


_ADVICE = {
    "ENUM_ARRAY_CHANGED": "values of an enum come and go only with compatibility_mode none; a text whose values will "
    'grow is {"type": "string", "x-extensible-enum": [...]} from the beginning, which mode forward accepts',
    "PROPERTY_REMOVED": "keep the property and stop sending it: one that is not required may be absent",
    "TYPE_CHANGED": "add a property of the new type beside the old one",
    "REQUIRED_ARRAY_EXTENDED": "leave the property optional",
    "REQUIRED_ARRAY_CHANGED": "keep sending the property",
}
"""Alternatives to a change that is refused, by the kind of change."""
_WAY_OUT = (
    "to make the change all the same, an administrator of the event type sets its compatibility_mode to none (PUT), "
    "submits the schema, and sets the mode back; or publish to a new event type"
)


def _advice(changes: Sequence[SchemaChange]) -> str:
    """Advice for those changes, and the way that is always there."""
    known = dict.fromkeys(_ADVICE[change.kind] for change in changes if change.kind in _ADVICE)
    return f". What to do: {'; '.join([*known, _WAY_OUT])}"


def _illustration(event: Mapping[str, Any] | None) -> str:
    text = msgspec.json.encode(event).decode()
    if event is None or len(text) > EXAMPLE_CHARACTERS_MAX:
        return ""
    return f"; for example this event was valid and would be refused: {text}"
