"""The command that looks for events."""

from contextlib import closing
from typing import Annotated

import typer

from rioni.cli.connections.session import Session, connected
from rioni.cli.events.event_options import (
    Columns,
    EventTypeNames,
    Filter,
    FromOffset,
    Limit,
    Metadata,
    PartitionNames,
    Since,
    Table,
    Template,
    Until,
    check_asked,
    note_lost,
    readers,
    selection,
    split_columns,
)
from rioni.cli.events.event_printing import event_writer
from rioni.cli.terminal.exit_codes import NOTHING_FOUND
from rioni.cli.terminal.meter import meter


app = typer.Typer()


@app.command(
    epilog="Example: rioni search orders --filter 'event.order.id == \"A-17\"'\n\n"
    "Example: rioni search orders --since 2026-01-31T08:00:00Z --until 2026-01-31T09:00:00Z --sort --table",
)
@connected
def search(
    session: Session,
    event_types: EventTypeNames,
    *,
    event_filter: Filter = None,
    since: Since = None,
    until: Until = None,
    from_offset: FromOffset = None,
    partition: PartitionNames = None,
    limit: Limit = None,
    sort: Annotated[
        bool, typer.Option("--sort", "-s", help="In the order in which the broker received the events.")
    ] = False,
    template: Template = None,
    table: Table = False,
    columns: Columns = None,
    metadata: Metadata = None,
) -> None:
    """Look for events in a range of time, in all partitions at the same time.

    Reads what is there when the command begins, and ends early at `--limit`. Without `--sort` events come as they are
    found, those of one partition in their order. Times are those at which events were stored; only what was stored in
    the range is read. A terminal shows how many positions of the partitions were looked at.

    The output has the forms of [tail](cli/events.md#rioni-tail). The exit code is 1 if nothing was found.
    """
    from rioni.cli.events.searching import Search
    from rioni.cli.events.selecting import limited, wanted_by

    write = event_writer(
        session.output,
        line_template=template,
        columns=split_columns(columns),
        table=table,
        metadata=metadata,
        with_event_type=len(event_types) > 1,
    )
    wanted = selection(partition, since, until, from_offset)
    reading = readers(session, event_types)
    check_asked(session, event_types, line_template=template, columns=split_columns(columns), event_filter=event_filter)
    search_ = Search(reading, wanted, wanted_by(event_filter), by_time=sort)
    found = 0

    def state() -> str:
        return f"{search_.scanned:,} of {search_.total:,} positions, {progress.rate(search_.scanned)}, {found:,} found"

    with meter() as progress, closing(search_.run()) as pieces:
        for piece in limited(pieces, limit):
            if piece.events:
                progress.clear()
                write(piece)
                found += len(piece.events)
            progress.show(state)
    write.finish()
    note_lost(reading, session.output.note)
    if not found:
        raise typer.Exit(NOTHING_FOUND)
