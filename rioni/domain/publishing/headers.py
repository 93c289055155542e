"""Headers stored with an event, outside its JSON."""

from collections.abc import Sequence

import msgspec

from rioni.domain.authorization import Attribute


class Headers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the broker keeps of an event beside its JSON; stored under these names, so none may ever change."""

    key: str | None = None
    """What compaction goes by (reference publishing#partitioning, publishing#delete-events)."""
    owner: Attribute | None = None
    """Whose event it is (reference publishing#event-owners)."""
    subscription_id: str | None = None
    """The subscription that it is for alone (reference publishing#consumer-tag)."""
    avro: bytes | None = None
    """The datum as it was published in Avro; the event itself is always JSON."""


NO_HEADERS = Headers()

REMOVED = Headers(key="")
"""What stands beside the place of an event that compaction has removed; no event has an empty key."""

HEADERS_BYTES = 150
"""What the headers of an event take in memory, but for Avro: an object, and a short text or three."""


def headers_bytes(headers: Sequence[Headers] | None) -> int:
    """About what headers take in memory, in bytes."""
    return sum([HEADERS_BYTES + len(each.avro or b"") for each in headers]) if headers else 0
