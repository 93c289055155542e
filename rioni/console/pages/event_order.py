"""Events of several partitions by time: which are the newest, and their order.

Metadata hold the time at which the broker received an event. Events without metadata are ordered by the time at which
they were stored: only the broker knows it, and tells whether an event was stored before a time. So times are halved,
for all events in one request, until the order is known.
"""

import math
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rioni.console.api import Api


ROUNDS_MAX = 32
"""Requests for one page: enough to order events of the last day to the millisecond."""

Item = Mapping[str, Any]
"""An event with its cursor."""
Cursors = list[dict[str, Any]]


def newest_places(api: Api, path: str, partitions: Sequence[str], wanted: int) -> Cursors:
    """Places behind which the newest events of all partitions are, and often some more; raises ApiProblem.

    Args:
        api: of the user.
        path: of the event type.
        partitions: those that are looked at.
        wanted: how many events there shall be, if the partitions have so many.
    """
    now = _now_ms()
    begins = [{"partition": partition, "offset": "BEGIN"} for partition in partitions]
    lags = ends = _lags(api, path, begins)
    if len(partitions) > 1 and sum(lags) > wanted:
        younger, older = 0, now
        for _ in range(ROUNDS_MAX):
            if older - younger <= 1:
                break
            age = _between(younger, older)
            places = [{"partition": partition, "timestamp": _timestamp(now - age)} for partition in partitions]
            counts = _lags(api, path, places)
            if sum(counts) < wanted:
                younger = age
                continue
            older, lags = age, counts
            if sum(counts) <= 2 * wanted:
                break
    return [
        begin | {"shift": max(0, end - min(lag, wanted))} for begin, lag, end in zip(begins, lags, ends, strict=True)
    ]


def newest_first(api: Api, path: str, items: Sequence[Item]) -> list[Item]:
    """These events by time, the newest first; raises ApiProblem.

    Args:
        api: of the user.
        path: of the event type.
        items: those of each partition in their order.
    """
    received = [_received_at(item) for item in items]
    times: Sequence[Any] = received if all(received) else _stored(api, path, items)
    # Events of one time and partition keep the order of the partition.
    numbered = sorted(range(len(items)), key=lambda number: (times[number], items[number]["cursor"]["offset"]))
    return [items[number] for number in reversed(numbered)]


def _received_at(item: Item) -> str:
    metadata = item["event"].get("metadata")
    return str(metadata.get("received_at") or "") if isinstance(metadata, dict) else ""


def _stored(api: Api, path: str, items: Sequence[Item]) -> list[int]:
    """When each event was stored at the earliest, in milliseconds; exact enough for their order."""
    now = _now_ms()
    earliest, latest = [0] * len(items), [now + 1] * len(items)
    partitions = [item["cursor"]["partition"] for item in items]
    for _ in range(ROUNDS_MAX):
        unknown = [each for each in range(len(items)) if _is_unknown(each, partitions, earliest, latest)]
        if not unknown:
            break
        middles = {each: now - _between(now - latest[each], now - earliest[each]) for each in unknown}
        pairs = [
            {
                "initial_cursor": {"partition": partitions[each], "offset": items[each]["cursor"]["offset"]},
                "final_cursor": {"partition": partitions[each], "timestamp": _timestamp(middle)},
            }
            for each, middle in middles.items()
        ]
        found = api.send("POST", f"{path}/cursor-distances", body=pairs).json()
        for (each, middle), answer in zip(middles.items(), found, strict=True):
            # The place of a time is before the first event that was stored then or later.
            bounds = latest if answer["distance"] >= 0 else earliest
            bounds[each] = middle
    return earliest


def _is_unknown(number: int, partitions: Sequence[str], earliest: Sequence[int], latest: Sequence[int]) -> bool:
    """Whether an event may be older or younger than one of another partition."""
    begin, end = earliest[number], latest[number]
    return end - begin > 1 and any(
        partitions[number] != partition and begin < others_end and others_begin < end
        for partition, others_begin, others_end in zip(partitions, earliest, latest, strict=True)
    )


def _between(younger: int, older: int) -> int:
    """An age between two, in milliseconds: first of the right magnitude, then in the middle."""
    least = max(younger, 1)
    middle = math.isqrt(least * older) if older > 2 * least else (younger + older) // 2
    return min(max(middle, younger + 1), older - 1)


def _lags(api: Api, path: str, places: Sequence[Mapping[str, Any]]) -> list[int]:
    found = api.send("POST", f"{path}/cursors-lag", body=places).json()
    return [max(0, each["unconsumed_events"]) for each in found]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _timestamp(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")
