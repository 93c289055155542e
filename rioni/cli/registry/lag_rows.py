"""The lag of subscriptions: by partition, summed up, and how it changes; pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rioni.wire.subscriptions import Subscription, SubscriptionStatistics


SAMPLES_MAX = 120
RATE_S = 60.0
"""The change is that of the last minute: that of two samples would jump."""
BARS = "▁▂▃▄▅▆▇█"
BY = ("partition", "event-type", "subscription")


@dataclass(frozen=True)
class Lag:
    """The lag of a partition, or of all partitions of an event type or subscription together.

    Args:
        subscription: its id.
        application: its owning application.
        group: its consumer group.
        event_type: None if it is about all of them.
        partition: None if it is about all of them.
        events: that are not committed; None if that is not known.
        seconds: age of the first of them; None if that is not known.
        streams: ids of the streams that read.
        errors: why it is not known.
    """

    subscription: str
    application: str
    group: str
    event_type: str | None
    partition: str | None
    events: int | None
    seconds: int | None
    streams: frozenset[str]
    errors: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """The subscription, event type and partition; the latter two are empty in a sum of all of them."""
        return (self.subscription, self.event_type or "", self.partition or "")

    def as_json(self) -> dict[str, Any]:
        """The members for programs, with the names of the API."""
        return {
            "subscription": self.subscription,
            "owning_application": self.application,
            "consumer_group": self.group,
            "event_type": self.event_type,
            "partition": self.partition,
            "unconsumed_events": self.events,
            "consumer_lag_seconds": self.seconds,
            "streams": sorted(self.streams),
            "errors": list(self.errors),
        }


def lags_of(subscription: Subscription, statistics: Iterable[SubscriptionStatistics]) -> list[Lag]:
    """The lag of each partition, in the order of their numbers."""
    return [
        Lag(
            subscription.id,
            subscription.owning_application,
            subscription.consumer_group,
            each.event_type,
            partition.partition,
            partition.unconsumed_events,
            partition.consumer_lag_seconds,
            frozenset(filter(None, [partition.stream_id])),
            () if partition.cursor_error is None else (partition.cursor_error,),
        )
        for each in statistics
        for partition in sorted(each.partitions, key=lambda each: (len(each.partition), each.partition))
    ]


def summed(lags: Iterable[Lag], by: str) -> list[Lag]:
    """The lags by `partition`, `event-type` or `subscription`: the sum of events, and the most seconds."""
    groups: dict[tuple[str, ...], list[Lag]] = {}
    for each in lags:
        groups.setdefault(each.key[: len(BY) - BY.index(by)], []).append(each)
    return [members[0] if by == "partition" else _sum(members, by) for members in groups.values()]


def total_events(lags: Iterable[Lag]) -> int:
    """All events that are known not to be committed."""
    return sum(each.events or 0 for each in lags)


def _sum(lags: Sequence[Lag], by: str) -> Lag:
    first = lags[0]
    events = [each.events for each in lags if each.events is not None]
    return Lag(
        first.subscription,
        first.application,
        first.group,
        first.event_type if by == "event-type" else None,
        None,
        sum(events) if events else None,
        max((each.seconds for each in lags if each.seconds is not None), default=None),
        frozenset().union(*(each.streams for each in lags)),
        tuple(error for each in lags for error in each.errors),
    )


class History:
    """The last samples of a lag."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)

    def add(self, at_s: float, events: int | None) -> None:
        """Remember a sample; one that is not known is passed over."""
        if events is not None:
            self._samples.append((at_s, events))

    @property
    def change_per_s(self) -> float | None:
        """Events by which the lag grows each second, negative if it shrinks; None before there are two samples."""
        if len(self._samples) < 2:  # noqa: PLR2004
            return None
        last_s, last = self._samples[-1]
        first_s, first = next(each for each in self._samples if last_s - each[0] <= RATE_S)
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    @property
    def empty_in_s(self) -> float | None:
        """Seconds until there is no lag, if it goes on as it does; None if it does not shrink."""
        change = self.change_per_s
        return None if change is None or change >= 0 else self._samples[-1][1] / -change

    def sparkline(self, width: int) -> str:
        """The last samples as bars, from 0 to the greatest of them."""
        values = [events for _, events in self._samples][-width:]
        most = max(values, default=0)
        return "".join(BARS[0] if most == 0 else BARS[-(-value * (len(BARS) - 1) // most)] for value in values)
