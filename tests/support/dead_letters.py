"""Dead letters without the failures that lead to them: written into the queue, as the broker writes them."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import httpx


KEEPING = {
    "nakadi.zalando.org/subscription-max-event-send-count": "2",
    "nakadi.zalando.org/subscription-unprocessable-event-policy": "DEAD_LETTER_QUEUE",
}
"""Annotations of a subscription that keeps dead letters."""
REASON = "The event was sent 2 times without being committed"
BATCH = 500


def dead_letter(
    subscription_id: str, event_type: str, position: int, event: Mapping[str, Any], reason: str = REASON
) -> dict[str, Any]:
    """An event of the queue, about an event of partition 0."""
    return {
        "metadata": {"eid": str(uuid4()), "occurred_at": "2026-11-20T10:00:00Z"},
        "subscription_id": subscription_id,
        "event_type": event_type,
        "partition": "0",
        "offset": f"001-0001-{position:018}",
        "error": {"message": reason},
        "event": event,
    }


def write(api: httpx.Client, letters: Sequence[Mapping[str, Any]]) -> None:
    """Write dead letters into the queue, which a subscription that keeps them has made."""
    for begin in range(0, len(letters), BATCH):
        batch = letters[begin : begin + BATCH]
        api.post("/event-types/nakadi.dead.letter.queue/events", json=batch).raise_for_status()
