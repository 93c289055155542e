"""Options of the commands that read events, and their meaning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode, urlsplit

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import BrokerSession
from rioni.cli.events.event_printing import EventWriter, event_writer, shown_paths
from rioni.cli.options import point_in_time
from rioni.cli.terminal.output import Output, as_sentence
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.cli.events.selecting import Selection, Wanted
    from rioni.client import EventType
    from rioni.client.ranges import Reader
    from rioni.wire.events import StreamTicket


EventTypeNames = Annotated[
    list[str], typer.Argument(help="Names of event types.", autocompletion=completions.event_types)
]
Limit = Annotated[int | None, typer.Option("--limit", "-l", help="Stop after this many events.", min=1)]


@dataclass(frozen=True)
class Selected:
    """Options that select events."""

    since: Annotated[
        datetime | None,
        typer.Option(
            help="Only events stored then or later: RFC 3339, a day in UTC, or how long ago, such as `10m`.",
            parser=point_in_time,
            metavar="TIME",
        ),
    ] = None
    until: Annotated[
        datetime | None,
        typer.Option(help="Only events stored before; as `--since`.", parser=point_in_time, metavar="TIME"),
    ] = None
    from_offset: Annotated[
        str | None,
        typer.Option(help="Begin with the event at this offset of the `--partition`, or with `begin` or `end`."),
    ] = None
    partition: Annotated[
        list[str] | None, typer.Option("--partition", "-p", help="Only events of this partition; may be repeated.")
    ] = None
    event_filter: Annotated[
        str | None,
        typer.Option(
            "--filter",
            "-f",
            help="Only events for which this is true: CEL, as in the filters of subscriptions.",
            metavar="EXPRESSION",
        ),
    ] = None

    def selection(self) -> "Selection":
        """The selection without the filter; raises Invalid if the options contradict each other."""
        from rioni.cli.events.selecting import Selection

        return Selection(
            partitions=tuple(self.partition or ()), since=self.since, until=self.until, from_offset=self.from_offset
        )

    def wanted(self) -> "Wanted":
        """A function that returns whether the filter lets an event pass; raises Invalid if it is none."""
        from rioni.cli.events.selecting import wanted_by

        return wanted_by(self.event_filter)


@dataclass(frozen=True)
class Printing:
    """Options about how events are written."""

    template: Annotated[
        str | None,
        typer.Option(help=r"Write each event by a template: `'{order.id}\t{cursor.offset}'`.", metavar="TEXT"),
    ] = None
    table: Annotated[bool, typer.Option("--table", "-t", help="Write a table instead of the events themselves.")] = (
        False
    )
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of the table: members such as `order.id`, or `time`, `partition`, `offset`, `event_type`, "
            "`event`; with commas between them.",
            metavar="NAMES",
        ),
    ] = None
    metadata: Annotated[
        bool | None,
        typer.Option(
            "--metadata/--no-metadata",
            help="Whether to show the member `metadata`.",
            show_default="--metadata, but --no-metadata for tables",
        ),
    ] = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [name.strip() for name in (self.columns or "").split(",") if name.strip()]

    def writer(self, output: Output, *, with_event_type: bool) -> EventWriter:
        """A writer of events in this form.

        Args:
            output: of the command.
            with_event_type: whether a table without columns tells event types apart.
        """
        return event_writer(
            output,
            line_template=self.template,
            columns=self.names,
            table=self.table,
            metadata=self.metadata,
            with_event_type=with_event_type,
        )

    def check(self, session: BrokerSession, event_types: Sequence[str], event_filter: str | None = None) -> None:
        """Check the members that options name against the schemas of the events; warns on stderr, raises Invalid."""
        paths = shown_paths(self.template, self.names)
        if not paths and event_filter is None:
            return
        from rioni.cli.publishing.checking import check_paths

        found = [session.client.event_types.get(name) for name in event_types]
        for warning in check_paths(found, paths):
            session.output.note(f"Warning: {warning}")
        if event_filter is not None:
            check_filter_option(session.output.note, found, event_filter)


def check_filter_option(note: Callable[[str], None], event_types: "Sequence[EventType]", event_filter: str) -> None:
    """Check a filter against the schemas of event types; warns, raises Invalid."""
    from rioni.cli.publishing.checking import check_filter_of

    for warning in check_filter_of(event_types, event_filter):
        note(f"Warning: {as_sentence(warning)}")


def readers(session: "BrokerSession", event_types: list[str]) -> "list[Reader]":
    """A patient reader of each event type, once the broker has answered; raises Invalid if one is named twice."""
    from rioni.client.ranges import Reader

    if len(set(event_types)) < len(event_types):
        raise Invalid("An event type is named twice.")
    for name in event_types:
        session.client.event_types.get(name)
        session.be_patient()
    return [Reader(session.client, name, note=session.output.note) for name in event_types]


def note_lost(readers: "list[Reader]", note: Callable[[str], None]) -> None:
    """Say how many events could not be read, if any."""
    for reader in readers:
        if reader.lost:
            note(f"{reader.lost:,} events of {reader.event_type} had expired before they could be read.")


# Prints the address of a stream with a ticket instead of a token, for browsers and others that send no token.


def show_ticket(session: BrokerSession, ticket: "StreamTicket") -> None:
    """Print the address of the stream that a ticket opens, and on standard error until when."""
    base = session.connection.url.rstrip("/")
    # The broker names the path with its base path, which the URL of the broker ends with.
    path = ticket.path.removeprefix(urlsplit(base).path)
    url = f"{base}{path}?{urlencode({'ticket': ticket.ticket})}"
    session.output.line({"url": url, "expires_at": ticket.expires_at}, url)
    session.output.note(
        f"This address opens one stream of server-sent events, until {ticket.expires_at:%H:%M:%SZ}. It permits what "
        "your token permits: keep it secret."
    )
