"""Owners of events: found by the event type's selector, and checked against the publisher's permissions.

Source: reference publishing#event-owners.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import AccessDenied
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.publishing.partitioning import key_text
from rioni.domain.publishing.results import Events, StepFailed, eid_of
from rioni.domain.schemas.field_path import FieldPath, MissingField, parse_path
from rioni.domain.schemas.path_check import ENRICHED_MEMBERS


CheckOwner = Callable[[Attribute, str], None]
"""Called with an owner and the event's id; raises AccessDenied if the publisher may not write for this owner."""

Owners = Sequence[Attribute | None]
"""The owner of each event; empty if owners are not determined."""


class OwnerSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled owner selector of an event type."""

    name: str
    path: FieldPath | None = None
    static: Attribute | None = None
    enriched: bool = False
    """Whether the owner is in metadata that the broker writes, and so known after enrichment only."""

    @classmethod
    def of(cls, selector: EventOwnerSelector, *, enriches: bool) -> "OwnerSelector":
        """Compile a selector.

        Args:
            selector: the owner selector of type `path` or `static`.
            enriches: whether the events are enriched.
        """
        if selector.type == "static":
            return cls(name=selector.name, static=Attribute(selector.name, selector.value))
        path = parse_path(selector.value)
        return cls(name=selector.name, path=path, enriched=enriches and is_enriched(path))

    def find(self, event: Mapping[str, Any]) -> Attribute | None:
        """The owner of an event; None if the path is absent or null: all readers may read it."""
        if self.path is None:
            return self.static
        try:
            value = self.path.read(event)
        except MissingField:
            return None
        return None if value is None else Attribute(self.name, key_text(value))


def is_enriched(path: FieldPath) -> bool:
    """Whether a path leads to a member of the metadata that the broker writes."""
    return len(path.segments) == 2 and path.segments[0] == "metadata" and path.segments[1] in ENRICHED_MEMBERS  # noqa: PLR2004 - `metadata` and a member


def submitted_owners(events: Events, selector: OwnerSelector | None, check: CheckOwner | None) -> Owners:
    """The owners in events as received.

    Args:
        events: the decoded events.
        selector: the owner selector of the event type.
        check: the check of the publisher; None if owners are not determined.

    Raises:
        StepFailed: the publisher may not write in the name of one of them.
    """
    if selector is None or check is None or selector.enriched:
        return ()
    return _checked(map(selector.find, events), events, check, step="validating")


def enriched_owners(
    enriched: Sequence[bytes], events: Events, selector: OwnerSelector | None, check: CheckOwner | None
) -> Owners:
    """The owners in metadata that the broker has written; arguments and errors are those of `submitted_owners`."""
    if selector is None or check is None or not selector.enriched:
        return ()
    return _checked(map(selector.find, map(_decode, enriched)), events, check, step="enriching", behind="enriching")


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _checked(
    found: Iterable[Attribute | None], events: Events, check: CheckOwner, *, step: str, behind: str = ""
) -> Owners:
    owners: list[Attribute | None] = []
    for owner, eid in zip(found, map(eid_of, events), strict=True):
        try:
            if owner is not None:
                check(owner, eid or "")
        except AccessDenied as ex:
            raise StepFailed(step, len(owners), str(ex), behind=behind) from ex
        owners.append(owner)
    return owners
