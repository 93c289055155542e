"""Who owns an event: what an event type's selector finds in it, and whether the publisher may write in that name.

Sources: reference publishing#event-owners, publishing#event-owners, publishing#event-owners.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rioni.domain.authorization import Attribute
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.event_types.field_path import FieldPath, MissingField, parse_path
from rioni.domain.publishing.enrichment import ENRICHED_MEMBERS
from rioni.domain.publishing.partitioning import key_text


CheckOwner = Callable[[Attribute, str], None]
"""Is called with an owner and the id of the event, and raises Denied if the publisher may not write in that name."""


class OwnerSelector(msgspec.Struct, frozen=True, kw_only=True):
    """An event type's selector, ready for use."""

    name: str
    path: FieldPath | None = None
    static: Attribute | None = None
    enriched: bool = False
    """Whether the owner stands in metadata that the broker writes, and so can be found after enrichment only.

    Source: reference publishing#event-owners.
    """

    @classmethod
    def of(cls, selector: EventOwnerSelector, *, enriches: bool) -> "OwnerSelector":
        """Get a selector ready.

        Args:
            selector: of type `path` or `static`.
            enriches: whether the event type's events are enriched.
        """
        if selector.type == "static":
            return cls(name=selector.name, static=Attribute(selector.name, selector.value))
        path = parse_path(selector.value)
        return cls(name=selector.name, path=path, enriched=enriches and is_enriched(path))

    def find(self, event: Mapping[str, Any]) -> Attribute | None:
        """The owner of an event; None where the path leads to nothing or to null: all readers may read it.

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
