"""Commands that show the lag of subscriptions, once and live."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.options import SECONDS_MAX
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import console_on
from rioni.cli.terminal.tables import Column, fit, table_of
from rioni.domain.errors import Invalid
from rioni.domain.timestamps import utc_text


if TYPE_CHECKING:
    from rioni.wire.subscriptions import Subscription, SubscriptionStatistics


app = typer.Typer(name="subscriptions")

REQUESTS_MAX = 8
"""The most requests at the same time, if there are many subscriptions."""
SPARKLINE_WIDTH = 30

SubscriptionIds = Annotated[
    list[str],
    typer.Argument(
        help="Ids of subscriptions, or OWNING_APPLICATION/CONSUMER_GROUP; all of them by default.",
        autocompletion=completions.subscriptions,
        metavar="[SUBSCRIPTION]...",
    ),
]
OwningApplication = Annotated[str | None, typer.Option(help="Without ids: only those of this application.")]
EventType = Annotated[
    str | None, typer.Option(help="Without ids: only those to this.", autocompletion=completions.event_types)
]
By = Annotated[
    str | None,
    typer.Option(
        help="`partition`, `event-type` or `subscription`; by default partition if ids are given, else subscription.",
        metavar="KIND",
    ),
]


@app.command(
    epilog="Example: rioni subscriptions lag 038fc871-1d2c-4e2e-aa29-1579e8f2e71f\n\n"
    "Example: rioni subscriptions lag --owning-application shop --fail-above 10000"
)
@connected
def lag(
    session: BrokerSession,
    subscriptions: SubscriptionIds = [],  # noqa: B006 - never changed
    *,
    owning_application: OwningApplication = None,
    event_type: EventType = None,
    by: By = None,
    fail_above: Annotated[
        int | None, typer.Option(help="Exit code 1 if a row has more uncommitted events.", min=0, metavar="EVENTS")
    ] = None,
    fail_above_seconds: Annotated[
        int | None, typer.Option(help="Exit code 1 if the first of them is older.", min=0, metavar="SECONDS")
    ] = None,
) -> None:
    """Show how many events subscriptions have not committed, and how old the first of them is.

    Before a subscription is first streamed, all that it would begin with counts. With `--fail-above` or
    `--fail-above-seconds`, a cursor beyond the end of its partition is a failure, too, and options that fit no
    subscription are an error. JSON has the same rows without the total.
    """
    by = _checked(by, subscriptions)
    found = _lags(session, _chosen(session, subscriptions, owning_application, event_type), strict=bool(subscriptions))
    rows = summed(found, by)
    if session.output.json:
        session.output.items((each.as_json() for each in rows), {})
    else:
        total = {"subscription": "total", "unconsumed_events": total_events(rows)}
        columns = _columns(by) | ({"problem": "errors"} if any(each.errors for each in rows) else {})
        session.output.items([*(each.as_json() for each in rows), *[total] * (len(rows) > 1)], columns)
    if fail_above is None and fail_above_seconds is None:
        return
    if not rows and (owning_application or event_type):
        wanted = {"of application": owning_application, "to event type": event_type}
        named = " ".join(f"{word} {name}" for word, name in wanted.items() if name)
        raise Invalid(f"There is no subscription {named}: nothing was checked.")
    if any(_is_too_much(each, fail_above, fail_above_seconds) for each in rows):
        raise typer.Exit(FOUND)


@app.command(
    epilog="Example: rioni subscriptions watch --owning-application shop\n\n"
    "Example: rioni subscriptions watch --every 10 --count 6 --json > lag.jsonl"
)
@connected
def watch(
    session: BrokerSession,
    subscriptions: SubscriptionIds = [],  # noqa: B006 - never changed
    *,
    owning_application: OwningApplication = None,
    event_type: EventType = None,
    by: By = None,
    every: Annotated[float, typer.Option(help="Look so often.", min=0.1, max=SECONDS_MAX, metavar="SECONDS")] = 2,
    count: Annotated[int | None, typer.Option(help="Stop after this many samples.", min=1)] = None,
) -> None:
    """Show live how far subscriptions are behind, until Ctrl-C: events, change per second, and a line of the last ones.

    On a terminal the table is refreshed in place; otherwise each refresh writes a line for each row. When the broker
    can't be reached, or is not available for a while, a message reports it, and watching goes on.
    """
    from rioni.client import ConnectionFailed, ServerError

    by = _checked(by, subscriptions)
    histories: dict[tuple[str, str, str], LagHistory] = {}
    with _screen(session) as show:
        for number, at_s in enumerate(_ticks(every, count)):
            try:
                chosen = _chosen(session, subscriptions, owning_application, event_type)
                rows = summed(_lags(session, chosen, strict=bool(subscriptions)), by)
            except (ConnectionFailed, ServerError) as ex:
                # A failure in the first round is treated as a mistake of the user.
                if number == 0:
                    raise
                session.output.note(str(ex))
                continue
            # The histories of lags that are gone are dropped.
            histories = {each.key: histories.get(each.key) or LagHistory() for each in rows}
            for each in rows:
                histories[each.key].add(at_s, each.events)
            show([_sample(each, histories[each.key]) for each in rows], by)
            session.output.nothing_found = not rows


def _is_too_much(row: "LagRow", events_max: int | None, seconds_max: int | None) -> bool:
    return (
        bool(row.errors)
        or (events_max is not None and (row.events or 0) > events_max)
        or (seconds_max is not None and (row.seconds or 0) > seconds_max)
    )


def _checked(by: str | None, subscriptions: Sequence[str]) -> str:

    if by is not None and by not in BY:
        raise typer.BadParameter(f"{by!r} is not one of {', '.join(map(repr, BY))}.", param_hint="--by")
    return by or ("partition" if subscriptions else "subscription")


def _chosen(
    session: BrokerSession, ids: Sequence[str], owning_application: str | None, event_type: str | None
) -> "Iterable[Subscription]":
    if ids:
        return [session.client.subscriptions.get(each) for each in ids]
    wanted = [] if event_type is None else [event_type]
    return session.client.subscriptions.list(owning_application=owning_application, event_types=wanted)


def _lags(session: BrokerSession, subscriptions: "Iterable[Subscription]", *, strict: bool) -> "list[LagRow]":
    """The lag of each partition; a subscription that was deleted meanwhile has none, or is an error."""
    from concurrent.futures import ThreadPoolExecutor

    from rioni.client import NotFound

    client = session.client

    def asked(subscription: "Subscription") -> "list[LagRow]":
        try:
            statistics = client.subscriptions.stats(subscription.id, show_time_lag=True, show_initial_lag=True)
            return lags_of(subscription, statistics)
        except NotFound:
            if strict:
                raise
            return []

    with ThreadPoolExecutor(REQUESTS_MAX) as threads:
        return [lag for found in threads.map(asked, subscriptions) for lag in found]


def _sample(row: "LagRow", history: "LagHistory") -> dict[str, Any]:
    return row.as_json() | {
        "at": utc_text(datetime.now(UTC)),
        "change_per_s": None if history.change_per_s is None else round(history.change_per_s, 1),
        "empty_in_s": None if history.empty_in_s is None else round(history.empty_in_s),
        "sparkline": history.sparkline(SPARKLINE_WIDTH).rjust(SPARKLINE_WIDTH),
    }


def _ticks(every: float, count: int | None) -> Iterator[float]:
    """The times at which to poll, on a monotonic clock; waits between them."""
    number = 0
    while count is None or number < count:
        started_s = monotonic()
        yield started_s
        number += 1
        if number != count:
            sleep(max(0.0, started_s + every - monotonic()))


@contextmanager
def _screen(session: BrokerSession) -> Iterator[Any]:
    """Yield a function that shows samples: a table that it refreshes in place, or lines."""
    if session.output.json or not sys.stdout.isatty():
        yield lambda samples, _by: _write_lines(session, samples)
        return
    from rich.live import Live

    with Live(console=console_on(sys.stdout), auto_refresh=False) as live:

        def show(samples: Sequence[dict[str, Any]], by: str) -> None:
            table = table_of(samples, _columns(by, live=True))
            fit(table, live.console.width)
            live.update(table, refresh=True)

        yield show


def _write_lines(session: BrokerSession, samples: Sequence[dict[str, Any]]) -> None:
    for each in samples:
        events = "?" if each["unconsumed_events"] is None else f"{each['unconsumed_events']:,}"
        change = "" if each["change_per_s"] is None else f", {each['change_per_s']:+,} per second"
        about = [each["at"], each["subscription"], _application(each), each["event_type"], each["partition"]]
        text = f"{' '.join(filter(None, about))}: {events} events, {len(each['streams'])} streams{change}"
        session.output.line({name: value for name, value in each.items() if name != "sparkline"}, text)


def _columns(by: str, *, live: bool = False) -> dict[str, Column]:
    found: dict[str, Column] = {"subscription": "subscription", "application": _application}
    if by != "subscription":
        found["event type"] = "event_type"
    if by == "partition":
        found["partition"] = "partition"
    found |= {"events": "unconsumed_events", "seconds": "consumer_lag_seconds"}
    if live:
        found |= {"per second": "change_per_s", "empty in": _empty_in, "": "sparkline"}
    if by == "partition":
        found["stream"] = lambda row: next(iter(row.get("streams", ())), None)
    else:
        found["streams"] = lambda row: len(row["streams"]) if "streams" in row else None
    return found


def _application(row: dict[str, Any]) -> str | None:
    return f"{row['owning_application']}/{row['consumer_group']}" if "owning_application" in row else None


def _empty_in(row: dict[str, Any]) -> str | None:
    seconds = row["empty_in_s"]
    if seconds is None:
        return None
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"  # noqa: PLR2004


# --- The lag of subscriptions: by partition, summed up, and how it changes; pure ---


SAMPLES_MAX = 120
RATE_S = 60.0
"""The change is that of the last minute: that of two samples would jump."""
BARS = "▁▂▃▄▅▆▇█"
BY = ("partition", "event-type", "subscription")


@dataclass(frozen=True)
class LagRow:
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


def lags_of(subscription: "Subscription", statistics: "Iterable[SubscriptionStatistics]") -> list[LagRow]:
    """The lag of each partition, in the order of their numbers."""
    return [
        LagRow(
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


def summed(lags: Iterable[LagRow], by: str) -> list[LagRow]:
    """The lags by `partition`, `event-type` or `subscription`: the sum of events, and the most seconds."""
    groups: dict[tuple[str, ...], list[LagRow]] = {}
    for each in lags:
        groups.setdefault(each.key[: len(BY) - BY.index(by)], []).append(each)
    return [members[0] if by == "partition" else _sum(members, by) for members in groups.values()]


def total_events(lags: Iterable[LagRow]) -> int:
    """All events that are known not to be committed."""
    return sum(each.events or 0 for each in lags)


def _sum(lags: Sequence[LagRow], by: str) -> LagRow:
    first = lags[0]
    events = [each.events for each in lags if each.events is not None]
    return LagRow(
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


class LagHistory:
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
