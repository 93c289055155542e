"""The audit trail, and proofs of the log that it is read from."""

from datetime import datetime
from typing import Annotated, Any

from rioni.wire.base import Model, note


class Change(Model):
    """An operation of a JSON patch (RFC 6902)."""

    op: Annotated[str, note(literal="PatchOperation")]
    path: str
    value: Annotated[Any, note(required=False)] = None


State = Annotated[dict[str, Any] | None, note("Null if there was none.", nullable=True, required=False)]


class AuditEntry(Model):
    """A change of the broker's own state."""

    position: Annotated[int, note("The position in the log, from 1 without gaps.")]
    recorded_at: datetime
    actor: Annotated[str, note("The name of the client that did it; `rioni` for the broker itself.")]
    address: Annotated[str, note("The address of the client; empty for the broker itself.")]
    user_agent: Annotated[str, note("The header `User-Agent` of the request; empty without one.")]
    flow_id: str
    kind: Annotated[str, note("The kind of change, such as `event-type.created`.")]
    resource: Annotated[str, note("The resource that was changed, such as `event-type:order.created`.")]
    changes: Annotated[list[Change], note("The JSON patch (RFC 6902) from the state before to the one after.")] = []
    before: State = None
    after: State = None
    realm: Annotated[
        str, note("The realm in which the name of the actor is unique; absent if it has none.", required=False)
    ] = ""


class Denial(Model):
    """A request that was refused with 401 or 403; several alike within some seconds are one."""

    first_at: datetime
    last_at: datetime
    status: Annotated[int, note(literal="DenialStatus")]
    method: str
    path: Annotated[str, note("The path without the query; empty if requests to several paths are counted.")]
    actor: Annotated[str, note("The name of the client; empty if it is unknown.")]
    address: str
    user_agent: str
    flow_id: Annotated[str, note("The flow id of the first of these requests.")]
    count: Annotated[int, note("The number of such requests within some seconds.")]
    realm: Annotated[str, note("The realm in which the name of the actor is unique; empty if it has none.")] = ""


class SignedNote(Model):
    """A signed note (C2SP)."""

    note: str


class AcceptedCosignatures(Model):
    """The number of cosignatures that were accepted."""

    cosignatures: int


class VerifierKey(Model):
    """A key that checkpoints of the log were signed with, and with which the one before has signed it."""

    verifier: str
    signature: str = ""


class VerifierKeys(Model):
    """The keys of a log in their order; the last one signs."""

    keys: list[VerifierKey]


Hashes = Annotated[list[str], note("Hashes of 32 bytes each, in base64, in the order of RFC 9162.")]


class InclusionProof(Model):
    """Hashes that show that an entry is in the log."""

    position: int
    size: int
    hashes: Hashes = []


class ConsistencyProof(Model):
    """Hashes that show that a log begins with an earlier one."""

    first: int
    second: int
    hashes: Hashes = []
