"""Commands that show, commit and reset the cursors of subscriptions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import SubscriptionId, check_reads
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.definitions import printing
from rioni.cli.options import Yes, point_in_time
from rioni.cli.terminal.output import confirm
from rioni.domain.errors import Invalid
from rioni.domain.texts import nearest
from rioni.domain.timestamps import utc_text


if TYPE_CHECKING:
    from rioni.client import CursorSpecification, Subscription


app = typer.Typer(name="subscriptions")

CURSOR = "`[EVENT_TYPE:]PARTITION:OFFSET`, without the event type where there is only one"
ENDS = {"begin": "BEGIN", "end": "END"}
COMMITTED = "committed"
PARTITIONS_NAMED = 10
"""The most partitions of a subscription that an error names."""


class CursorMove(NamedTuple):
    """The move of a cursor.

    Args:
        event_type: its name.
        partition: its number.
        target: where it leads.
        committed: where it is; None before the subscription is first streamed.
    """

    event_type: str
    partition: str
    target: "CursorSpecification"
    committed: str | None


@app.command(epilog="Example: rioni subscriptions cursors 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def cursors(session: BrokerSession, subscription: SubscriptionId) -> None:
    """Show the committed [cursors](reference/subscriptions.md); none before the subscription is first streamed."""
    columns = {"event type": "event_type", "partition": "partition", "offset": "offset"}
    session.output.items(session.client.subscriptions.cursors(subscription), columns)


@app.command(
    epilog="Example: rioni subscriptions commit 038fc871-1d2c-4e2e-aa29-1579e8f2e71f "
    "--stream-id 2c4f8a0a-3d9b-4f70-b6d9-5ab1a4d1a7d4 0:001-0001-000000000000000012"
)
@connected
def commit(
    session: BrokerSession,
    subscription: SubscriptionId,
    places: Annotated[list[str], typer.Argument(help=f"Each {CURSOR}.", metavar="CURSOR...")],
    *,
    stream_id: Annotated[str, typer.Option(help="The stream that has the partitions.")],
) -> None:
    """Commit cursors for a stream that is open, which never moves them back; `reset` does."""
    from rioni.client import Cursor

    found = session.client.subscriptions.get(subscription)
    wanted = [
        Cursor(event_type=event_type, partition=partition, offset=offset, cursor_token="cli")  # noqa: S106 - it is compared with nothing
        for event_type, partition, offset in (_cursor(text, found) for text in places)
    ]
    results = session.client.subscriptions.commit(subscription, stream_id, wanted)
    # An empty answer means that all cursors advanced.
    rows = [each.members() for each in results] or [
        {"cursor": each.members(), "result": "committed"} for each in wanted
    ]
    columns = {
        "event type": "cursor.event_type",
        "partition": "cursor.partition",
        "offset": "cursor.offset",
        "result": "result",
    }
    session.output.items(rows, columns)


@app.command(
    epilog="Example: rioni subscriptions reset 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --to begin --dry-run\n\n"
    "Example: rioni subscriptions reset 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --to 2h\n\n"
    "Example: rioni subscriptions reset 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --to committed --shift -100\n\n"
    "Example: rioni subscriptions reset 038fc871-1d2c-4e2e-aa29-1579e8f2e71f "
    "--cursor 0:001-0001-000000000000000012 --yes"
)
@connected
def reset(
    session: BrokerSession,
    subscription: SubscriptionId,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            help="`begin`, `end`, `committed`, a time, or how long ago: before the first event that was stored then.",
            metavar="PLACE",
        ),
    ] = None,
    cursor: Annotated[
        list[str],
        typer.Option(help=f"A single one: {CURSOR}; may be repeated.", metavar="CURSOR"),
    ] = [],  # noqa: B006 - never changed
    shift: Annotated[
        int | None,
        typer.Option(
            help="Move each forward by this many positions; negative numbers move it back.", metavar="POSITIONS"
        ),
    ] = None,
    event_type: Annotated[
        str | None,
        typer.Option(help="Only the cursors of this event type.", autocompletion=completions.event_types),
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Only the cursors of this partition.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show where the cursors would be.")] = False,
    yes: Yes = False,
) -> None:
    """Move the committed cursors of a subscription, back too, after showing where and how many events come again.

    Open streams end, and their clients open new ones; that may take a minute. Partitions that are not named keep their
    cursors. A shift that leads too far leads to the beginning or end. Positions are counted, of which some may have no
    event any more.
    """
    found = session.client.subscriptions.get(subscription)
    wanted = _selected(found, [*_wanted(session, found, to, cursor, shift)], event_type, partition)
    rows = _preview(session, wanted)
    if dry_run or not session.output.json:
        _show(session, rows)
    if dry_run:
        return
    again = sum(each["again"] or 0 for each in rows)
    skipped = sum(each["skipped"] or 0 for each in rows)
    confirm(
        f"Move these cursors on {session.connection.url}? {again:,} events come again, {skipped:,} are skipped.",
        yes=yes,
    )
    session.client.subscriptions.reset(subscription, [each.target for each in wanted])
    if session.output.json:
        _show(session, rows)
    else:
        session.output.line(None, f"The cursors of {printing.counted(len(wanted), 'partition')} are moved.")


def _wanted(
    session: BrokerSession, subscription: "Subscription", to: str | None, cursors: Sequence[str], shift: int | None
) -> list[CursorMove]:
    from rioni.client import CursorSpecification

    if (to is None) == (not cursors):
        raise Invalid("Name where to move the cursors: use --to for all of them, or --cursor for single ones.")
    committed = {
        (str(each.event_type), each.partition): each.offset
        for each in session.client.subscriptions.cursors(subscription.id)
    }
    if to is None:
        return [
            CursorMove(
                event_type,
                partition,
                CursorSpecification(event_type=event_type, partition=partition, offset=offset, shift=shift),
                committed.get((event_type, partition)),
            )
            for event_type, partition, offset in (_cursor(text, subscription) for text in cursors)
        ]
    return [
        CursorMove(
            name,
            each.partition,
            _target(to, name, each.partition, committed, shift),
            committed.get((name, each.partition)),
        )
        for name in subscription.event_types
        for each in session.client.partitions.list(name)
    ]


def _target(
    to: str, event_type: str, partition: str, committed: Mapping[tuple[str, str], str], shift: int | None
) -> "CursorSpecification":
    """Return the place in a partition that `--to` names."""
    from rioni.client import CursorSpecification

    target = CursorSpecification(event_type=event_type, partition=partition, shift=shift)
    if to.lower() in ENDS:
        target.offset = ENDS[to.lower()]
    elif to.lower() == COMMITTED:
        if (event_type, partition) not in committed:
            raise Invalid("The subscription has no committed cursors before it is first streamed or reset.")
        target.offset = committed[event_type, partition]
    elif near := nearest(to, (*ENDS, COMMITTED)):
        raise Invalid(f"There is no place {to}; did you mean {near}?")
    else:
        target.timestamp = utc_text(point_in_time(to))
    return target


def _selected(
    subscription: "Subscription", places: Sequence[CursorMove], event_type: str | None, partition: str | None
) -> list[CursorMove]:
    if event_type is not None:
        check_reads(subscription, event_type)
    found = [each for each in places if event_type in (None, each.event_type) and partition in (None, each.partition)]
    if not found:
        named = [f"{each.partition} of {each.event_type}" for each in places[:PARTITIONS_NAMED]]
        more = ", ..." if len(places) > len(named) else "."
        raise Invalid(f"The subscription has no such partition; it has {', '.join(named)}{more}")
    return found


def _preview(session: BrokerSession, places: Sequence[CursorMove]) -> list[dict[str, Any]]:
    """Return the present and the new place of each cursor, and the positions between; None where they are unknown."""
    rows = []
    for place in places:
        moved = _moved(session, place)
        (there,) = session.client.partitions.lag(place.event_type, [moved])
        distance = _distance(session, place, moved)
        rows.append(
            {
                "event_type": place.event_type,
                "partition": place.partition,
                "committed": place.committed,
                "offset": moved.offset,
                "again": distance and max(distance, 0),
                "skipped": distance and max(-distance, 0),
                "unconsumed_events": there.unconsumed_events,
            }
        )
    return rows


def _moved(session: BrokerSession, place: CursorMove) -> "CursorSpecification":
    """The offset that a target stands for; one that is shifted too far becomes the beginning or end."""
    from rioni.client import CursorSpecification, Unprocessable

    target = place.target
    bare = msgspec.structs.replace(target, event_type=None, shift=target.shift or 0)
    try:
        (found,) = session.client.partitions.shift(place.event_type, [bare])
    except Unprocessable:
        if not target.shift:
            raise
        target.offset, target.timestamp = "BEGIN" if target.shift < 0 else "END", None
        target.shift = bare.shift = 0
        bare.offset, bare.timestamp = target.offset, None
        (found,) = session.client.partitions.shift(place.event_type, [bare])
    return CursorSpecification(partition=place.partition, offset=found.offset)


def _distance(session: BrokerSession, place: CursorMove, moved: "CursorSpecification") -> int | None:
    """Positions by which a cursor moves back; None if it was not there, or its place is not available any more."""
    from rioni.client import CursorSpecification, Unprocessable

    if place.committed is None:
        return None
    last = CursorSpecification(partition=place.partition, offset=place.committed)
    try:
        return session.client.partitions.distances(place.event_type, [(moved, last)])[0].distance
    except Unprocessable:
        return None


def _show(session: BrokerSession, rows: Sequence[dict[str, Any]]) -> None:
    columns = {
        "event type": "event_type",
        "partition": "partition",
        "committed": "committed",
        "then": "offset",
        "again": "again",
        "skipped": "skipped",
        "unconsumed then": "unconsumed_events",
    }
    session.output.items(rows, columns)


def _cursor(text: str, subscription: "Subscription") -> tuple[str, str, str]:
    parts = text.split(":")
    names = subscription.event_types
    if len(parts) == 2 and len(names) == 1:  # noqa: PLR2004
        parts = [names[0], *parts]
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004
        raise typer.BadParameter(f"{text} is not a cursor; write {CURSOR}")
    check_reads(subscription, parts[0])
    return parts[0], parts[1], parts[2]
