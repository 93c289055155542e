"""Headers stored with an event, outside its JSON."""

from collections.abc import Sequence

import msgspec

from rioni.domain.access.authorization import Attribute


class Headers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data that the broker stores with an event's JSON; the names are stored, so none may ever change."""

    key: str | None = None
    """Compaction key, with the owner: see `stored_key` (reference publishing#compaction-key)."""
    owner: Attribute | None = None
    """The event's owner (reference publishing#event-owners)."""
    subscription_id: str | None = None
    """The only subscription that gets it (reference publishing#consumer-tag)."""
    avro: bytes | None = None
    """The datum as it was published in Avro; the event itself is always JSON."""


NO_HEADERS = Headers()

_OWNED = "\x1fowned:"
"""How the stored keys of owned events begin."""


def stored_key(key: str, owner: Attribute | None) -> str:
    """The key under which an event is compacted: events of different owners never supersede each other.

    An event without an owner keeps its key as it is, unless that could be mistaken for one of an owner.

    Args:
        key: the compaction key that the publisher has chosen.
        owner: the owner of the event, None for no owner.
    """
    if owner is None and not key.startswith(_OWNED):
        return key
    named = [] if owner is None else [owner.data_type, owner.value]
    return _OWNED + msgspec.json.encode([*named, key]).decode()


COMPACTED = Headers(key="")
"""Marks the position of an event that compaction has removed; no event has an empty key."""

HEADERS_BYTES = 150
"""Memory of an event's headers without Avro data: an object and a few short strings."""


def headers_bytes(headers: Sequence[Headers] | None) -> int:
    """Approximate size of headers in memory, in bytes."""
    return sum([HEADERS_BYTES + len(each.avro or b"") for each in headers]) if headers else 0
