"""The audit trail, and proofs of the log that it is read from."""

from datetime import datetime
from typing import Any

from rioni.wire.base import Model


class Change(Model):
    """An operation of a JSON patch (RFC 6902)."""

    op: str
    """`add`, `remove` or `replace`."""
    path: str
    value: Any = None


class AuditEntry(Model):
    """A change of the broker's own state."""

    position: int
    """The position in the log, from 1 without gaps."""
    recorded_at: datetime
    actor: str
    """The name of the client that did it; `rioni` for the broker itself."""
    address: str
    user_agent: str
    flow_id: str
    kind: str
    """The kind of the entry, such as `event-type.created`."""
    resource: str
    """The resource that was changed, such as `event-type:order.created`."""
    changes: list[Change] = []
    before: dict[str, Any] | None = None
    """The state before, if it was asked for."""
    after: dict[str, Any] | None = None
    realm: str = ""
    """The realm in which the actor's name is unique; empty if it has none, or the broker does not report it."""


class Denial(Model):
    """A request that was refused with 401 or 403; several alike within some seconds are one."""

    first_at: datetime
    last_at: datetime
    status: int
    method: str
    path: str
    actor: str
    address: str
    user_agent: str
    flow_id: str
    count: int
    realm: str = ""
    """The realm in which the actor's name is unique; empty if it has none, or the broker does not report it."""


class VerifierKey(Model):
    """A key that checkpoints of the log were signed with, and with which the one before has signed it."""

    verifier: str
    signature: str = ""


class InclusionProof(Model):
    """Hashes that show that an entry is in the log."""

    position: int
    size: int
    hashes: list[str] = []


class ConsistencyProof(Model):
    """Hashes that show that a log begins with an earlier one."""

    first: int
    second: int
    hashes: list[str] = []
