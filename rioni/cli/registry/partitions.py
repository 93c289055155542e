"""Commands for the partitions and timelines of event types, and for computing with cursors."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import AsOf, EventTypeName
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.options import Yes
from rioni.cli.terminal.output import confirm


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rioni.cli.terminal.tables import Column
    from rioni.client import CursorSpecification


# --- Commands for the partitions of event types, and for computing with cursors ---

app = typer.Typer(name="partitions", no_args_is_help=True, help="Partitions of event types, and places in them.")

CURSOR = "`PARTITION:OFFSET`, such as `0:001-0001-000000000000000012` or `0:BEGIN`"
Cursors = Annotated[list[str], typer.Argument(help=f"Each {CURSOR}.", metavar="PARTITION:OFFSET")]


def unconsumed(item: "Mapping[str, Any]") -> "int | str | None":
    """The number of events after a place; if it lies beyond the newest event, by how much."""
    count = item.get("unconsumed_events")
    return count if count is None or count >= 0 else f"{-count:,} beyond the end"


COLUMNS: "dict[str, Column]" = {
    "partition": "partition",
    "oldest": "oldest_available_offset",
    "newest": "newest_available_offset",
    "unconsumed": unconsumed,
}


@app.command("list", epilog="Example: rioni partitions list order.created")
@connected
def list_partitions(
    session: BrokerSession,
    event_type: EventTypeName,
    *,
    after: Annotated[
        list[str], typer.Option(help=f"Count the events after this place, {CURSOR}; may be repeated.", metavar="CURSOR")
    ] = [],  # noqa: B006 - never changed
) -> None:
    """Show the partitions of an event type, and the oldest and newest [offset](reference/cursors.md) of each."""
    from rioni.client import Cursor

    cursors = [Cursor(partition=partition, offset=offset) for partition, offset in map(_cursor, after)]
    session.output.items(session.client.partitions.list(event_type, cursors=cursors), COLUMNS)


@app.command(epilog="Example: rioni partitions show order.created 0")
@connected
def show(
    session: BrokerSession,
    event_type: EventTypeName,
    partition: Annotated[str, typer.Argument(help="Number of the partition.")],
    *,
    after: Annotated[str | None, typer.Option(help="Count the events after this offset.", metavar="OFFSET")] = None,
) -> None:
    """Show a partition."""
    session.output.item(session.client.partitions.get(event_type, partition, consumed_offset=after), COLUMNS)


@app.command("set-count", epilog="Example: rioni partitions set-count order.created 12 --yes")
@connected
def set_count(
    session: BrokerSession,
    event_type: EventTypeName,
    count: Annotated[int, typer.Argument(help="How many there are to be; never fewer than now.", min=1)],
    *,
    yes: Yes = False,
) -> None:
    """Add partitions; events of a key may go to another partition from then on."""
    confirm(f"Let {event_type} have {count} partitions? Keys may move to other ones, and it can't be undone.", yes=yes)
    session.client.partitions.set_count(event_type, count)
    session.output.line({"event_type": event_type, "partition_count": count}, f"{event_type} has {count} partitions.")


@app.command(epilog="Example: rioni partitions distance order.created 0 BEGIN 001-0001-000000000000000012")
@connected
def distance(
    session: BrokerSession,
    event_type: EventTypeName,
    partition: Annotated[str, typer.Argument(help="Number of the partition.")],
    first: Annotated[str, typer.Argument(help="An offset.")],
    last: Annotated[str, typer.Argument(help="Another one.")],
) -> None:
    """Count the positions from one offset of a partition to another one."""
    from rioni.client import CursorSpecification

    ends = [CursorSpecification(partition=partition, offset=offset) for offset in (first, last)]
    (found,) = session.client.partitions.distances(event_type, [(ends[0], ends[1])])
    session.output.line(found, f"{found.distance:,}")


@app.command(epilog="Example: rioni partitions shift order.created --by -10 0:001-0001-000000000000000012")
@connected
def shift(
    session: BrokerSession,
    event_type: EventTypeName,
    cursors: Cursors,
    *,
    by: Annotated[int, typer.Option(help="Positions; negative for earlier ones.", metavar="POSITIONS")],
) -> None:
    """Show the places a number of positions after others, or before them."""
    shifted = _specifications(cursors, shift=by)
    found = session.client.partitions.shift(event_type, shifted)
    session.output.items(found, {"partition": "partition", "offset": "offset"})


@app.command(epilog="Example: rioni partitions lag order.created 0:001-0001-000000000000000012")
@connected
def lag(session: BrokerSession, event_type: EventTypeName, cursors: Cursors) -> None:
    """Count the events after places in partitions."""
    session.output.items(session.client.partitions.lag(event_type, _specifications(cursors)), COLUMNS)


def _specifications(cursors: "Sequence[str]", shift: int | None = None) -> "list[CursorSpecification]":
    from rioni.client import CursorSpecification

    return [
        CursorSpecification(partition=partition, offset=offset, shift=shift)
        for partition, offset in map(_cursor, cursors)
    ]


def _cursor(text: str) -> tuple[str, str]:
    partition, colon, offset = text.partition(":")
    if not partition or not colon or not offset:
        raise typer.BadParameter(f"{text} is not a place; write {CURSOR}")
    return partition, offset


# --- Commands for the timelines of event types ---

timelines_app = typer.Typer(
    name="timelines",
    no_args_is_help=True,
    help="The storages of an event type's events, one after the other.",
)


@timelines_app.command("list", epilog="Example: rioni timelines list order.created")
@connected
def list_timelines(session: BrokerSession, event_type: EventTypeName, *, as_of: AsOf = None) -> None:
    """Show the [timelines](reference/timelines.md) of an event type, oldest first."""
    session.output.items(
        session.client.timelines.list(event_type, as_of=as_of),
        {
            "order": "order",
            "storage": "storage_id",
            "topic": "topic",
            "created": "created_at",
            "active since": "switched_at",
            "cleaned up": "cleaned_up_at",
        },
    )


@timelines_app.command(epilog="Example: rioni timelines create order.created archive")
@connected
def create(
    session: BrokerSession,
    event_type: EventTypeName,
    storage: Annotated[str, typer.Argument(help="Id of the storage.", autocompletion=completions.storages)],
) -> None:
    """Begin a timeline in a storage, in which new events go from then on; waits until they do."""
    session.client.timelines.create(event_type, storage)
    active = session.client.timelines.list(event_type)[-1]
    session.output.line(active, f"New events of {event_type} go to timeline {active.order} in {active.storage_id}.")
