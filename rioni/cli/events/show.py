"""The commands that show events: as they are published, and those that are looked for."""

from contextlib import closing
from typing import Annotated

import typer

from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.events.event_options import EventTypeNames, Limit, Printing, Selected, note_lost, readers
from rioni.cli.terminal.ending import NOTHING_FOUND
from rioni.cli.terminal.output import meter
from rioni.domain.errors import Invalid


# --- The command that shows events as they are published ---

app = typer.Typer()

LAST_MAX = 100_000


@app.command(
    epilog="Example: rioni tail orders\n\n"
    "Example: rioni tail orders --since 10m --filter 'event.total > 100' --columns time,order.id,total\n\n"
    "Example: rioni tail orders --last 5 --no-follow | jq .",
)
@connected
def tail(
    session: BrokerSession,
    event_types: EventTypeNames,
    *,
    selected: Selected,
    last: Annotated[
        int | None,
        typer.Option("--last", "-n", help="Begin with this many of the last events.", min=1, max=LAST_MAX),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Whether to wait for events published from now on.")
    ] = True,
    limit: Limit = None,
    printing: Printing,
) -> None:
    r"""Show events as they are published, or were.

    Without options these are the events that are published from now on, each as a line with its JSON, byte for byte:
    `rioni tail orders | jq .order`. `--since`, `--last` and `--from-offset` begin earlier. Events that are there
    already come in the order in which the broker received them, over all partitions and event types; events that
    are published meanwhile come as they arrive, those of one partition always in their order.

    `--no-follow` ends with the newest event as of the start; if no option sets the beginning, it begins with the oldest
    one. `--until` ends at that time.

    No subscription is made and nothing is committed: others do not notice. When the connection breaks, or the broker
    ends the stream, reading continues after the last event. Events that retention removes before they could be
    read are counted on stderr.

    `--json` writes a line `{"cursor": {"event_type", "partition", "offset"}, "event": …}` for each event. `--template`
    and `--columns` name members of the event by their path; `cursor.partition` and `cursor.offset` are its place, in
    columns also `time` (when the broker received it), `partition`, `offset`, `event_type` and `event` (all of it). A
    member of the event with such a name is `event.time`. A path that the schema excludes is an error; one that it does
    not declare is shown with a warning on stderr. `--filter` is the
    [language of subscriptions](reference/subscriptions.md#filters): `event.total > 100 && metadata.flow_id != ''`. It
    is [compared with the schema](reference/subscriptions.md#filter-check) as theirs are. An offset beyond the end of
    the partition is an error.
    """
    from rioni.cli.events.across_partitions import tailed
    from rioni.cli.events.selecting import limited

    write = printing.writer(session.output, with_event_type=len(event_types) > 1)
    wanted = selected.selection()
    if last is not None and (selected.since is not None or selected.from_offset is not None):
        raise Invalid("A read begins at one place: give --last, --since or --from-offset.")
    reading = readers(session, event_types)
    printing.check(session, event_types, selected.event_filter)
    pieces = tailed(reading, wanted, selected.wanted(), last=last, follows=follow)
    try:
        with closing(pieces):
            for piece in limited(pieces, limit):
                write(piece)
    finally:
        write.finish()
        note_lost(reading, session.output.note)


# --- The command that searches for events ---


@app.command(
    epilog="Example: rioni search orders --filter 'event.order.id == \"A-17\"'\n\n"
    "Example: rioni search orders --since 2026-01-31T08:00:00Z --until 2026-01-31T09:00:00Z --sort --table",
)
@connected
def search(
    session: BrokerSession,
    event_types: EventTypeNames,
    *,
    selected: Selected,
    limit: Limit = None,
    sort: Annotated[
        bool, typer.Option("--sort", "-s", help="Show events in the order in which the broker received them.")
    ] = False,
    printing: Printing,
) -> None:
    """Look for events in a range of time, in all partitions at the same time.

    Reads the events that are there when the command begins, and ends early at `--limit`. Without `--sort` events come
    as they are found, those of one partition in their order. Times are those at which events were stored; only what was
    stored in the range is read. A terminal shows how many positions of the partitions were looked at.

    The output has the forms of [tail](cli/events.md#rioni-tail). The exit code is 1 if nothing was found.
    """
    from rioni.cli.events.across_partitions import Search
    from rioni.cli.events.selecting import limited

    write = printing.writer(session.output, with_event_type=len(event_types) > 1)
    wanted = selected.selection()
    reading = readers(session, event_types)
    printing.check(session, event_types, selected.event_filter)
    search_ = Search(reading, wanted, selected.wanted(), by_time=sort)
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
