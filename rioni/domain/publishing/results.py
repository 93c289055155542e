"""Per-event results of a batch, as the API returns them (reference publishing#results)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rioni.domain.schemas.patterns import is_uuid


Events = Sequence[Mapping[str, Any]]
"""The decoded events of a batch, in the order of the request."""


class ItemResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one event of a batch; the API returns its JSON."""

    publishing_status: str
    """`submitted`, `failed` or `aborted`."""
    detail: str
    step: str
    """`none`, `validating`, `partitioning`, `enriching` or `publishing`."""
    eid: str | UnsetType = UNSET
    """The eid as it was sent, valid or not; absent if the event has none (reference publishing#result-items)."""
    partition: str | None = None
    """None while it is unknown."""


@dataclass(eq=False)
class StepFailed(Exception):
    """A step of publishing rejects the batch because of one of its events."""

    step: str
    index: int
    """The index of the first event that fails."""
    detail: str
    partitions: Sequence[int] = ()
    """The partitions of the events before it, if the step has chosen them."""
    behind: str = ""
    """The step that later events have reached; empty for the one before `step`."""


def eid_of(event: Mapping[str, Any]) -> str | UnsetType:
    """The event's id, if it has one that is a UUID."""
    eid = sent_eid_of(event)
    return eid if eid is not UNSET and is_uuid(eid) else UNSET


def sent_eid_of(event: Mapping[str, Any]) -> str | UnsetType:
    """The event's id as it was sent, valid or not; numbers and truth values as their JSON."""
    metadata = event.get("metadata")
    match metadata.get("eid") if isinstance(metadata, dict) else None:
        case str(eid):
            return eid
        case bool() | int() | float() as eid:
            return msgspec.json.encode(eid).decode()
    return UNSET
