"""Owners of events: selects the owner by the event type's selector, and checks the publisher's permission for it.

Sources: reference publishing#event-owners, publishing#event-owners, publishing#event-owners.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rioni.domain.access.authorization import Attribute
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.event_types.field_path import FieldPath, MissingField, parse_path
from rioni.domain.publishing.enrichment import ENRICHED_MEMBERS
from rioni.domain.publishing.partitioning import key_text


CheckOwner = Callable[[Attribute, str], None]
"""Called with an owner and the event's id; raises AccessDenied if the publisher may not write for this owner."""


class OwnerSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled owner selector of an event type."""

    name: str
    path: FieldPath | None = None
    static: Attribute | None = None
    enriched: bool = False
    """Whether the owner is in metadata that the broker writes, and so known after enrichment only.

    Source: reference publishing#event-owners.
    """

    @classmethod
    def of(cls, selector: EventOwnerSelector, *, enriches: bool) -> "OwnerSelector":
        """Compile a selector.

        Args:
            selector: of type `path` or `static`.
            enriches: whether the events are enriched.
        """
        if selector.type == "static":
            return cls(name=selector.name, static=Attribute(selector.name, selector.value))
        path = parse_path(selector.value)
        return cls(name=selector.name, path=path, enriched=enriches and is_enriched(path))

    def find(self, event: Mapping[str, Any]) -> Attribute | None:
        """The owner of an event; None if the path is absent or null: all readers may read it.

        Source: reference publishing#event-owners.
        """
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
