"""Commands that try filters of subscriptions and consume subscriptions, and those for dead letters."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import SubscriptionId, check_reads
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.events.event_options import Limit, Printing, show_ticket
from rioni.cli.options import SECONDS_MAX
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import as_sentence
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.client import Cursor, FilterEvaluation, Redriven


# --- The command that tries filters of subscriptions ---

app = typer.Typer(name="subscriptions")

EVENTS_AT_ONCE = 20
"""The most events that the API takes."""


@app.command(
    "try-filter", epilog="Example: rioni subscriptions try-filter 'event.total > 100 && has(event.coupon)' events.jsonl"
)
@connected
def try_filter(
    session: BrokerSession,
    expression: Annotated[str, typer.Argument(help="A CEL expression over `event`.", metavar="FILTER")],
    file: Annotated[
        str | None, typer.Argument(help="Events, a JSON object a line; by default those of standard input.")
    ] = None,
    *,
    event_type: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare it with the schema of this event type; may be repeated.",
            autocompletion=completions.event_types,
        ),
    ] = None,
) -> None:
    """Try a [filter](reference/subscriptions.md#filters) on events, and see which of its parts decides.

    Exit code 1 if no event matches.
    """
    import msgspec

    from rioni.cli.publishing.event_files import json_events
    from rioni.client.values import encode, number

    if event_type:
        for warning in session.client.subscriptions.check_filter(expression, event_type):
            session.output.note(f"Warning: {as_sentence(warning)}")
    decode = msgspec.json.Decoder(float_hook=number).decode
    events = [decode(each) for each in json_events(file)]
    rows: list[tuple[Any, FilterEvaluation]] = []
    for start in range(0, len(events), EVENTS_AT_ONCE):
        some = events[start : start + EVENTS_AT_ONCE]
        rows += zip(some, session.client.subscriptions.try_filter(expression, some), strict=True)
    session.output.items(
        [
            {
                "matches": each.matches,
                **({"failure": each.failure} if each.failure else {}),
                "parts": [part.members() for part in each.parts],
                "event": event,
            }
            for event, each in rows
        ],
        {
            "matches": lambda row: "yes" if row["matches"] else "no",
            "because": lambda row: ", ".join(f"{_shown(part)}: {part['expression']}" for part in row["parts"]),
            "event": lambda row: encode(row["event"]).decode(),
        },
    )
    if not any(each.matches for _, each in rows):
        raise typer.Exit(FOUND)


def _shown(part: Mapping[str, object]) -> str:
    value, failure = part.get("value"), part.get("failure")
    return f"failed ({failure})" if failure else "no value" if value is None else str(value).lower()


# --- The command that consumes a subscription: writes its events, and commits those that are written ---

BATCH_EVENTS = 500
LOOK_EVERY_S = 0.1
IDLE_MIN_S = 2
"""The smallest value of `--idle`: more seconds than a broker lets events wait for a batch."""


@app.command(
    epilog="Example: rioni subscriptions consume 038fc871-1d2c-4e2e-aa29-1579e8f2e71f\n\n"
    "Example: rioni subscriptions consume 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --idle 5 > events.jsonl",
)
@connected
def consume(
    session: BrokerSession,
    subscription: SubscriptionId,
    *,
    limit: Limit = None,
    idle: Annotated[
        float | None,
        typer.Option(
            help="Stop when no event has arrived for this long.", metavar="SECONDS", min=IDLE_MIN_S, max=SECONDS_MAX
        ),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition",
            "-p",
            help="Only of this partition, `EVENT_TYPE:PARTITION` where there are several event types; may be repeated.",
        ),
    ] = None,
    printing: Printing,
) -> None:
    """Write the events of a subscription, and commit those that are written.

    The command is a consumer as any other: it shares the partitions with the streams that there are, and what it has
    committed does not come again. To look at events without that, use [tail](cli/events.md#rioni-tail). It goes on
    until Ctrl-C, `--limit` or `--idle`. An event is committed when it was handed to the program that reads the output;
    what was being written when that ended comes again. The output has the forms of `tail`.
    """
    import msgspec

    from rioni.client.ranges import RangePart, place

    write = printing.writer(session.output, with_event_type=True)
    if printing.template or printing.names:
        printing.check(session, session.client.subscriptions.get(subscription).event_types)
    shows_places = session.output.json or bool(printing.template) or printing.table or bool(printing.names)
    # Brokers name the cursor of the last event of a batch only.
    batch_limit = 1 if shows_places else BATCH_EVENTS
    activity = _Activity()
    with session.client.subscription(
        subscription,
        batch_limit=batch_limit,
        partitions=_partitions(session, subscription, partition or ()),
        on_assigned=lambda _: activity.note(),
    ) as consumer:
        left = limit
        with activity.stopped_when_idle(consumer.stop, idle):
            for event in consumer:
                activity.note()
                at = place(event.cursor.offset)
                write(RangePart(event.event_type, event.partition, at, [msgspec.Raw(event.raw)], at))
                # Events that wait in memory must not be committed.
                write.finish()
                if left is not None and (left := left - 1) == 0:
                    break


@app.command(epilog="Example: rioni subscriptions ticket shop/billing")
@connected
def ticket(session: BrokerSession, subscription: SubscriptionId) -> None:
    """Print an address that opens one stream of a subscription without a token, for a [browser](clients/browsers.md).

    It holds a [ticket](reference/streams.md#tickets), which is good for a minute. `curl --no-buffer --header 'Accept:
    text/event-stream' URL` reads it, too.
    """
    session.client.subscriptions.get(subscription)  # the ticket itself is given for any id
    show_ticket(session, session.client.subscriptions.stream_ticket(subscription))


def _partitions(session: BrokerSession, subscription: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Event types and partitions that the user names."""
    if not names:
        return []
    known = session.client.subscriptions.get(subscription)
    event_types = known.event_types
    found = []
    for name in names:
        event_type, _, partition = name.rpartition(":")
        if not event_type and len(event_types) > 1:
            raise Invalid(f"{name} may be a partition of several event types; write {event_types[0]}:{name}.")
        check_reads(known, event_type or event_types[0])
        found.append((event_type or event_types[0], partition))
    return found


class _Activity:
    """Knows when something has happened last."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self._ended = threading.Event()

    def note(self) -> None:
        """Something happens."""
        self._last_s = time.monotonic()

    @contextmanager
    def stopped_when_idle(self, stop: Callable[[], None], idle_s: float | None) -> Iterator[None]:
        """Stop when nothing has happened for so long; never if that is None."""
        if idle_s is None:
            yield
            return
        watcher = threading.Thread(target=self._watch, args=(stop, idle_s), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._ended.set()
            # The watcher checks the event at this interval.
            watcher.join(2 * LOOK_EVERY_S)

    def _watch(self, stop: Callable[[], None], idle_s: float) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            if time.monotonic() - self._last_s > idle_s:
                stop()
                return


# --- Commands for dead letters ---


dead_letters_app = typer.Typer(
    name="dead-letters", no_args_is_help=True, help="Events that the consumers of a subscription never commit."
)


@dataclass(frozen=True)
class Letters:
    """Options that select dead letters."""

    event_type: Annotated[
        str | None,
        typer.Option("--event-type", help="Only events of this event type.", autocompletion=completions.event_types),
    ] = None
    partition: Annotated[str | None, typer.Option("--partition", help="Only events of this partition.")] = None
    from_offset: Annotated[str | None, typer.Option(help="Only events from this offset on.")] = None
    to_offset: Annotated[str | None, typer.Option(help="Only events up to this offset.")] = None
    reason: Annotated[str | None, typer.Option(help="Only events with exactly this error, as the list shows it.")] = (
        None
    )


LIMIT_MAX = 1_000
LettersMax = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many at most.")]


@dead_letters_app.command("list", epilog="Example: rioni dead-letters list 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def list_dead_letters(
    session: BrokerSession,
    subscription: SubscriptionId,
    *,
    letters: Letters,
    limit: LettersMax = 20,
    show_redriven: Annotated[
        bool, typer.Option("--show-redriven", help="Include those that were published again before, and mark them.")
    ] = False,
) -> None:
    """Show [dead letters](concepts/dead-letters.md) of a subscription that were not published again, oldest first."""
    found = session.client.subscriptions.dead_letters(
        subscription,
        **asdict(letters),
        limit=limit + 1,
        show_redriven=show_redriven,
        only_open=not show_redriven,
    )
    marks = {"redriven": "redriven"} if show_redriven else {}
    session.output.first(
        found,
        limit,
        {
            "event type": "event_type",
            "partition": "partition",
            "offset": "offset",
            "kept": "kept_at",
            "error": lambda letter: letter["error"].get("reason") or letter["error"].get("message"),
            **marks,
            "event": "event",
        },
        f"`--limit` shows up to {LIMIT_MAX:,}, `--partition` and `--from-offset` others.",
    )


@dead_letters_app.command(
    epilog="Example: rioni dead-letters redrive 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --partition 0"
)
@connected
def redrive(
    session: BrokerSession,
    subscription: SubscriptionId,
    *,
    letters: Letters,
    limit: LettersMax = 1_000,
    force: Annotated[bool, typer.Option("--force", help="Also those that were published again before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them, by error too.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Go on until all are published, with a line for each `--limit` of them.")
    ] = False,
) -> None:
    """Publish dead letters again, for their subscription alone.

    A restart of the broker, or an outage of a minute, is no error once the broker has answered. With `--force` it is
    one if some may have been published: check before you repeat it, as that publishes them once more.
    """
    chosen = {**asdict(letters), "limit": limit, "force": force}
    session.reach()
    session.be_patient()
    step = _preview if dry_run else _redrive
    after = step(session, subscription, chosen)
    while everything and after is not None:
        after = step(session, subscription, chosen | {"after": after})


def _preview(session: BrokerSession, subscription: str, chosen: Mapping[str, Any]) -> "Cursor | None":
    """Show the effect of a redrive; return the cursor at which the next one continues."""
    found = session.client.subscriptions.preview_redrive(subscription, **chosen)
    more = [f"There are more than these {found.redriven}."] if found.more else []
    session.output.nothing_found = found.redriven + found.already_redriven == 0
    reasons = [f"  {each.count}: {each.reason}" for each in found.reasons]
    session.output.line(found, "\n".join([f"A redrive now: {_counts(found)}", *more, *reasons]))
    return found.after


def _redrive(session: BrokerSession, subscription: str, chosen: Mapping[str, Any]) -> "Cursor | None":
    """Redrive; return the cursor at which the next one continues."""
    done = session.client.subscriptions.redrive(subscription, **chosen)
    session.output.line(done, _counts(done))
    session.output.nothing_found = done.redriven + done.already_redriven == 0
    return done.after


def _counts(done: "Redriven") -> str:
    return (
        f"{done.redriven} redriven, {done.already_redriven} already redriven, "
        f"{done.without_event_type} without an event type"
    )
