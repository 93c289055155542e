"""Options of the commands that read events, and their meaning."""

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode, urlsplit

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import Session
from rioni.cli.events.event_printing import shown_paths
from rioni.cli.options import point_in_time
from rioni.cli.terminal.output import as_sentence
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.cli.events.selecting import Selection
    from rioni.client import EventType
    from rioni.client.ranges import Reader
    from rioni.wire.events import StreamTicket


USER_DEFINED = "user_defined"

EventTypeNames = Annotated[
    list[str], typer.Argument(help="Names of event types.", autocompletion=completions.event_types)
]
Since = Annotated[
    datetime | None,
    typer.Option(
        help="Only events stored then or later: RFC 3339, a day in UTC, or how long ago, such as `10m`.",
        parser=point_in_time,
        metavar="TIME",
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(help="Only events stored before; as `--since`.", parser=point_in_time, metavar="TIME"),
]
PartitionNames = Annotated[
    list[str] | None, typer.Option("--partition", "-p", help="Only events of this partition; may be repeated.")
]
FromOffset = Annotated[
    str | None,
    typer.Option(help="Begin with the event at this offset of the `--partition`, or with `begin` or `end`."),
]
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        "-f",
        help="Only events for which this is true: CEL, as in the filters of subscriptions.",
        metavar="EXPRESSION",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", "-l", help="Stop after this many events.", min=1)]
Template = Annotated[
    str | None,
    typer.Option(help=r"Write each event by a template: `'{order.id}\t{cursor.offset}'`.", metavar="TEXT"),
]
Table = Annotated[bool, typer.Option("--table", "-t", help="Write a table instead of the events themselves.")]
Columns = Annotated[
    str | None,
    typer.Option(
        help="Columns of the table: members such as `order.id`, or `time`, `partition`, `offset`, `event_type`, "
        "`event`; with commas between them.",
        metavar="NAMES",
    ),
]
Metadata = Annotated[
    bool | None,
    typer.Option(
        "--metadata/--no-metadata",
        help="Whether to show the member `metadata`.",
        show_default="--metadata, but --no-metadata for tables",
    ),
]


def split_columns(columns: str | None) -> list[str]:
    """The names in the option `--columns`."""
    return [name.strip() for name in (columns or "").split(",") if name.strip()]


def check_asked(
    session: "Session",
    event_types: Sequence[str],
    *,
    line_template: str | None,
    columns: Sequence[str],
    event_filter: str | None = None,
) -> None:
    """Check the members that options name against the schemas of the events; warns on stderr, raises Invalid."""
    paths = shown_paths(line_template, columns)
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


def selection(
    partitions: list[str] | None, since: datetime | None, until: datetime | None, from_offset: str | None = None
) -> "Selection":
    """Return the selection that the options ask for; raises Invalid if they contradict each other."""
    from rioni.cli.events.selecting import Selection

    return Selection(partitions=tuple(partitions or ()), since=since, until=until, from_offset=from_offset)


def readers(session: "Session", event_types: list[str]) -> "list[Reader]":
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


def check_placing(session: "Session", event_type: "EventType", key: str | None, partition: str | None) -> None:
    """Check that `--key` and `--partition` apply to the events of an event type; raises Invalid."""
    from rioni.client import Forbidden
    from rioni.client.encoding import CATEGORY_WITHOUT_METADATA
    from rioni.client.ranges import Locator

    if key is not None and event_type.category == CATEGORY_WITHOUT_METADATA:
        raise Invalid(f"Events of {event_type.name} have no metadata, and so no key: leave out --key.")
    if partition is not None and event_type.partition_strategy != USER_DEFINED:
        raise Invalid(
            f"The broker chooses the partitions of {event_type.name}: --partition is for the strategy {USER_DEFINED}."
        )
    if partition is not None:
        # A user who may publish need not be one who may see the partitions.
        with contextlib.suppress(Forbidden):
            Locator(session.client, event_type.name).bounds([partition])


# Prints the address of a stream with a ticket instead of a token, for browsers and others that send no token.


def show_ticket(session: Session, ticket: "StreamTicket") -> None:
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
