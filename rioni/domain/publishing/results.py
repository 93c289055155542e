"""Per-event results of a batch, as the API returns them (reference publishing#results)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rioni.domain.schemas.formats import is_uuid


Events = Sequence[Mapping[str, Any]]
"""The decoded events of a batch, in the order of the request."""


class ItemResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one event of a batch; its JSON is what the API returns."""

    publishing_status: str
    """`submitted`, `failed` or `aborted`."""
    detail: str
    step: str
    """`none`, `validating`, `partitioning`, `enriching` or `publishing`."""
    eid: str | UnsetType = UNSET
    """Absent where the event has none that is a UUID (reference publishing#result-items)."""
    partition: str | None = None
    """None while it is unknown."""


@dataclass(eq=False)
class StepFailed(Exception):
    """A step of publishing rejects the batch because of one of its events."""

    step: str
    index: int
    """Of the event, the first one that fails."""
    detail: str
    partitions: Sequence[int] = ()
    """Of the events before it, if the step has chosen them."""
    behind: str = ""
    """The step that the events behind it have reached; empty for the one before `step`."""


_STEP_BEFORE = {"validating": "none", "partitioning": "validating", "enriching": "partitioning"}


def rejection(events: Events, failure: StepFailed, partitions: Sequence[int] = ()) -> list[ItemResult]:
    """Results of a batch that is rejected because of one event.

    Those before it passed the step, those behind it did not reach it.

    Args:
        events: all of them.
        failure: the step, the event, and what is wrong with it.
        partitions: of the events, if all are known.
    """
    partitions = failure.partitions or partitions
    behind = failure.behind or _STEP_BEFORE[failure.step]
    return [
        ItemResult(
            publishing_status="failed" if index == failure.index else "aborted",
            detail=failure.detail if index == failure.index else "",
            step=failure.step if index <= failure.index else behind,
            eid=eid_of(event),
            partition=str(partitions[index]) if index < len(partitions) else None,
        )
        for index, event in enumerate(events)
    ]


def reject_all(events: Events, detail: str) -> list[ItemResult]:
    """Results of a batch that is rejected before any of its events was checked."""
    return [ItemResult(publishing_status="aborted", detail=detail, step="none", eid=eid_of(event)) for event in events]


def partial_results(events: Events, partitions: Sequence[int], failed: Mapping[int, str]) -> list[ItemResult]:
    """Results of all events when some partitions were not written, for a 207 response.

    Args:
        events: all of them.
        partitions: for each event its partition.
        failed: the reason for each partition that was not written, or whose outcome is unknown.
    """
    return [
        ItemResult(
            publishing_status="failed" if partition in failed else "submitted",
            detail=failed.get(partition, ""),
            step="publishing",
            eid=eid_of(event),
            partition=str(partition),
        )
        for event, partition in zip(events, partitions, strict=True)
    ]


def eid_of(event: Mapping[str, Any]) -> str | UnsetType:
    """The event's id, if it has one that is a UUID."""
    metadata = event.get("metadata")
    eid = metadata.get("eid") if isinstance(metadata, dict) else None
    return eid if isinstance(eid, str) and is_uuid(eid) else UNSET
