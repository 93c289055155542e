"""System events: their ids, which make repeated publishing idempotent, and pseudonyms of clients."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid5

import msgspec


class SystemEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a system event type, to be published."""

    eid: str
    occurred_at: str
    """RFC 3339."""
    flow_id: str
    """Of the request that caused it; empty where there was none."""
    members: Mapping[str, Any]
    """Its content, `metadata` left out; values may be `msgspec.Raw`."""

    def json(self) -> bytes:
        """The event as JSON, with the members of the metadata that a publisher gives."""
        metadata = {"occurred_at": self.occurred_at, "eid": self.eid}
        if self.flow_id:
            metadata["flow_id"] = self.flow_id
        return msgspec.json.encode({"metadata": metadata, **self.members})


def derived_eid(source: UUID, part: str) -> str:
    """The eid of an event, deterministic, so that a retry after a crash yields the same one.

    Args:
        source: what the event reports on.
        part: names it among the events that report on the same.
    """
    return str(uuid5(source, part))


def pseudonymize(salt: str, name: str) -> str:
    """The hexadecimal SHA-256 of salt and name.

    Source: reference system-event-types#audit-log, system-event-types#kpi-event-types.
    """
    return sha256((salt + name).encode()).hexdigest()
