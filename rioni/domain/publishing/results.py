"""Per-event results of a batch, as the API returns them (reference publishing#results)."""

from collections.abc import Mapping, Sequence
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


class BatchRefused(Exception):
    """Nothing of a batch may be stored; carries one result for each event."""

    def __init__(self, results: Sequence[ItemResult]) -> None:
        self.results = results
        super().__init__()


_STEP_BEFORE = {"validating": "none", "partitioning": "validating", "enriching": "partitioning"}


def refusal(
    events: Events,
    step: str,
    failed: int,
    detail: str,
    *,
    partitions: Sequence[int] = (),
    behind: str | None = None,
) -> BatchRefused:
    """The rejection of a batch because of one event: those before it passed the step, those behind did not reach it.

    Args:
        events: all of them.
        step: the failed step.
        failed: the index of the event.
        detail: what is wrong with it.
        partitions: of the first events, as far as known.
        behind: the step that the events behind it have reached, unless it is the one before `step`.
    """
    behind = behind or _STEP_BEFORE[step]
    return BatchRefused(
        [
            ItemResult(
                publishing_status="failed" if index == failed else "aborted",
                detail=detail if index == failed else "",
                step=step if index <= failed else behind,
                eid=eid_of(event),
                partition=str(partitions[index]) if index < len(partitions) else None,
            )
            for index, event in enumerate(events)
        ]
    )


def refusal_of_all(events: Events, detail: str) -> BatchRefused:
    """The rejection of a batch before any of its events was checked."""
    return BatchRefused(
        [ItemResult(publishing_status="aborted", detail=detail, step="none", eid=eid_of(event)) for event in events]
    )


def stored_or_not(events: Events, partitions: Sequence[int], failed: Mapping[int, str]) -> list[ItemResult]:
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
