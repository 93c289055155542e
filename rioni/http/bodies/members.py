"""Members of objects within request bodies: the cursors that they name, and the violations by missing members."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rioni.domain.subscriptions.cursor_spec import CursorSpec, timestamp_violations


_PLACE = ("partition", "offset", "event_type", "timestamp")
ATTRIBUTE_MEMBERS = ("data_type", "value")
"""The members of an attribute of an authorization section."""


def named_place(item: Mapping[str, Any]) -> CursorSpec:
    """The cursor spec of an item with valid JSON types."""
    shift = item.get("shift") or 0
    return CursorSpec(**{name: item.get(name) for name in _PLACE}, shift=shift)


def place_of_pair(item: Mapping[str, Any]) -> CursorSpec:
    """The cursor spec of a cursor in a pair, which is not shifted: any member `shift` is ignored."""
    return named_place({**item, "shift": None})


def cursor_gaps(item: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the violations of a cursor that lacks its partition, or has not exactly one of offset and timestamp."""
    if not item.get("partition"):
        yield f"{path}.partition", "partition must not be null"
    if item.get("timestamp") is None and not item.get("offset"):
        yield f"{path}.offset", "offset must not be null"
    yield from timestamp_violations(place_of_pair(item), path)


def cursor_violations(item: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the violations of a committed cursor of which a member is missing or empty."""
    for member in ("partition", "offset"):
        if not item.get(member):
            yield f"{path}.{member}", f"cursor {member} cannot be empty"
    for member in ("event_type", "cursor_token"):
        if item.get(member) is None:
            yield f"{path}.{member}", "must not be null"


def authorization_gaps(members: Mapping[str, Any], lists: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the violations of an authorization section in which a list, or a member of an attribute, is missing."""
    yield from gaps(members, "authorization", lists)
    for name in lists:
        yield from list_gaps(members.get("authorization") or {}, name, ATTRIBUTE_MEMBERS, "authorization.")


def gaps(members: Mapping[str, Any], name: str, required: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a violation for each required member that an inner object lacks; none without this object."""
    inner = members.get(name)
    for member in required:
        if inner is not None and inner.get(member) is None:
            yield f"{name}.{member}", "must not be null"


def list_gaps(
    members: Mapping[str, Any], name: str, required: Sequence[str], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield a violation for each required member that an item of a list lacks."""
    for index, item in enumerate(members.get(name) or ()):
        for member in required:
            if item.get(member) is None:
                yield f"{prefix}{name}[{index}].{member}", "must not be null"
