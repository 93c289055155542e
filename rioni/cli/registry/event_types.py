"""Commands that show, create, delete and count event types."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from rioni.cli.connections.options import AsOf, Category, CleanupPolicy, EventTypeName, UnusedDays
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.definitions import editing
from rioni.cli.definitions.editing import (
    Annotations,
    Attributes,
    DefinitionFile,
    Labels,
    asked,
    attributes,
    created,
    texts,
)
from rioni.cli.definitions.printing import COLUMNS, DAY_MS, MEMBERS
from rioni.cli.events.event_options import show_ticket
from rioni.cli.options import DAYS_MAX, Yes
from rioni.cli.terminal.output import confirm_name, say
from rioni.cli.terminal.tables import Column, client_of, indented


# --- Commands that show, create and delete event types ---

ANY_OBJECT = {"schema": {"type": "object"}}
STATISTIC = {"messages_per_minute": 0, "message_size": 1}

app = typer.Typer(name="event-types", no_args_is_help=True, help="Event types: what events may be published.")


Listed = Annotated[str | None, typer.Option(help="Only those that list it.", metavar="TYPE:VALUE")]


@dataclass(frozen=True)
class Filters:
    """Options that select event types, named as the client names them."""

    name: Annotated[str | None, typer.Option(help="Only these names; `*` matches any text.")] = None
    owning_application: Annotated[str | None, typer.Option(help="Only those of this application.")] = None
    category: Category = None
    cleanup_policy: CleanupPolicy = None
    labels: Annotated[
        list[str],
        typer.Option("--label", help="Only those with this label; may be repeated.", metavar="KEY[:VALUE]"),
    ] = field(default_factory=list)
    unused_days: UnusedDays = None
    as_of: AsOf = None


@app.command("list", epilog="Example: rioni event-types list --name 'order.*' --label team:checkout")
@connected
def list_event_types(
    session: BrokerSession,
    *,
    filters: Filters,
    admin: Listed = None,
    reader: Listed = None,
    writer: Listed = None,
    annotation: Annotated[
        list[str], typer.Option(help="Only those with this annotation; may be repeated.", metavar="KEY[:VALUE]")
    ] = [],  # noqa: B006 - never changed
) -> None:
    """Show the event types to which all that is given applies."""
    found = session.client.event_types.list(
        **asdict(filters), admin=admin, reader=reader, writer=writer, annotations=annotation
    )
    session.output.items(found, COLUMNS)


@app.command(
    epilog="Example: rioni event-types show order.created\n\n"
    "Example: rioni event-types show order.created --yaml > order.created.yaml"
)
@connected
def show(
    session: BrokerSession,
    event_type: EventTypeName,
    *,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print a definition that `apply` and `edit` accept.")] = False,
    as_of: AsOf = None,
) -> None:
    """Show an [event type](reference/event-types.md) with its schema."""
    found = session.client.event_types.get(event_type, as_of=as_of)
    if yaml and not session.output.json:
        say(editing.as_yaml(found), end="")
        return
    session.output.item(found, MEMBERS)
    if not session.output.json:
        say(f"\n{indented(found.schema.schema)}")


@app.command(
    epilog="Example: rioni event-types create order.created --owning-application shop\n\n"
    "Example: rioni event-types create order.created --owning-application shop --schema order.schema.json "
    "--partition-strategy hash --partition-key order_id --partitions 4\n\n"
    "Example: rioni event-types create --file order.created.yaml"
)
@connected
def create(
    session: BrokerSession,
    event_type: Annotated[str | None, typer.Argument(help="Name of the new event type.")] = None,
    *,
    file: DefinitionFile = None,
    owning_application: Annotated[str | None, typer.Option(help="Application that it belongs to.")] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="File with the schema in JSON or YAML; .avsc is Avro. By default any JSON object is valid.",
            metavar="FILE",
        ),
    ] = None,
    category: Category = None,
    partition_strategy: Annotated[str | None, typer.Option(help="`random`, `hash` or `user_defined`.")] = None,
    partition_key: Annotated[
        list[str], typer.Option(help="With `hash`: path of a member whose value decides; may be repeated.")
    ] = [],  # noqa: B006 - never changed
    partitions: Annotated[int | None, typer.Option(help="How many partitions it has.", min=1)] = None,
    cleanup_policy: CleanupPolicy = None,
    retention_days: Annotated[float | None, typer.Option(help="How long events are kept.", min=0, max=DAYS_MAX)] = None,
    compatibility_mode: Annotated[str | None, typer.Option(help="`forward`, `compatible` or `none`.")] = None,
    audience: Annotated[str | None, typer.Option(help="Audience, such as `company-internal`.")] = None,
    admin: Attributes = [],  # noqa: B006 - never changed
    reader: Attributes = [],  # noqa: B006 - never changed
    writer: Attributes = [],  # noqa: B006 - never changed
    label: Labels = [],  # noqa: B006 - never changed
    annotation: Annotations = [],  # noqa: B006 - never changed
) -> None:
    """Create an event type from options, or from a definition.

    Without `--category` it is `business`. If any of `--admin`, `--reader` and `--writer` is given, all three are
    needed. `rioni event-types apply` creates what does not exist, and changes what does.
    """
    given: dict[str, Any] = {
        "name": event_type,
        "owning_application": owning_application,
        "schema_file": schema and str(schema.absolute()),
        "schema": ANY_OBJECT if schema is None and file is None else None,
        "category": category,
        "partition_strategy": partition_strategy,
        "partition_key_fields": partition_key or None,
        "default_statistic": partitions
        and STATISTIC | dict.fromkeys(("read_parallelism", "write_parallelism"), partitions),
        "cleanup_policy": cleanup_policy,
        "options": None if retention_days is None else {"retention_time": round(retention_days * DAY_MS)},
        "compatibility_mode": compatibility_mode,
        "audience": audience,
        "authorization": attributes(admins=admin, readers=reader, writers=writer),
        "labels": texts(label),
        "annotations": texts(annotation),
    }
    found = created(session, asked("event-type", file, given))
    session.output.line(found, f"The event type {found.name} is created.")


@app.command(epilog="Example: rioni event-types edit order.created")
@connected
def edit(session: BrokerSession, event_type: EventTypeName, *, yes: Yes = False) -> None:
    """Change an event type in an editor: VISUAL, EDITOR, or vi.

    Shows the changes, asks, and makes them if the event type is still as it was. The editor opens again with the
    errors, until the definition is right or is left as it is. The edited text is never lost: if it was not used, its
    file is named. A member that is removed keeps its value; `{}` and `[]` empty it.
    """
    editing.edit(session, lambda: session.client.event_types.get(event_type), yes=yes)


@app.command(epilog="Example: rioni event-types delete order.created")
@connected
def delete(session: BrokerSession, event_type: EventTypeName, *, yes: Yes = False) -> None:
    """Delete an event type with its schemas and all of its events, after it was asked for its name.

    Says before which subscriptions and producers use it. An event type with subscriptions is not deleted.
    """
    session.client.event_types.get(event_type)
    if not yes:
        _say_who_uses(session, event_type)
        confirm_name(f"All events of {event_type} on {session.connection.url} will be deleted.", event_type)
    session.client.event_types.delete(event_type)
    session.output.line({"name": event_type}, f"The event type {event_type} is deleted.")


@app.command(epilog="Example: rioni event-types producers order.created")
@connected
def producers(session: BrokerSession, event_type: EventTypeName) -> None:
    """Show the clients that published to an event type [lately](reference/operations.md#usage)."""
    columns: dict[str, Column] = {
        "client": client_of,
        "last published": "last_published_at",
        "since": "since",
        "events": "events",
    }
    session.output.items(session.client.event_types.producers(event_type), columns)


@app.command(epilog="Example: rioni event-types ticket order.created")
@connected
def ticket(session: BrokerSession, event_type: EventTypeName) -> None:
    """Print an address that opens one stream of an event type without a token, for a [browser](clients/browsers.md).

    It holds a [ticket](reference/streams.md#tickets), which is good for a minute. `curl --no-buffer --header 'Accept:
    text/event-stream' URL` reads it, too.
    """
    session.client.event_types.get(event_type)  # the ticket itself is given for any name
    show_ticket(session, session.client.event_types.stream_ticket(event_type))


@app.command(epilog="Example: rioni event-types consumers order.created")
@connected
def consumers(session: BrokerSession, event_type: EventTypeName) -> None:
    """Show who reads an event type: subscriptions, and clients without one."""
    found = session.client.event_types.consumers(event_type, show_time_lag=True)
    if session.output.json:
        session.output.item(found)
        return
    session.output.items(
        found.subscriptions,
        {
            "subscription": "id",
            "application": "owning_application",
            "group": "consumer_group",
            "streams": "streams",
            "unconsumed": "unconsumed_events",
            "seconds": "consumer_lag_seconds",
            "last committed": lambda item: max(
                (each["last_committed_at"] or "" for each in item["clients"]), default=None
            ),
            "clients": lambda item: [client_of(each) for each in item["clients"]],
        },
    )
    if found.low_level:
        say("")
        session.output.items(
            found.low_level, {"without a subscription": client_of, "last read": "last_read_at", "events": "events"}
        )


def _say_who_uses(session: BrokerSession, name: str) -> None:
    for each in session.client.subscriptions.list(event_types=[name]):
        session.output.note(
            f"Subscription {each.id} of {each.owning_application}/{each.consumer_group} reads {name}: "
            f"rioni subscriptions delete {each.id}"
        )
    for producer in session.client.event_types.producers(name):
        session.output.note(
            f"{producer.client} published to {name}, last at {producer.last_published_at:%Y-%m-%d %H:%M}."
        )


# --- The command that counts event types ---

facets_app = typer.Typer(name="event-types", no_args_is_help=True, help="Event types: what events may be published.")

FACETS = ("owning_application", "category", "cleanup_policy", "label")


@facets_app.command(
    epilog="Example: rioni event-types facets\n\n"
    "Example: rioni event-types facets --owning-application shop --unused-days 60"
)
@connected
def facets(
    session: BrokerSession,
    *,
    filters: Filters,
    limit: Annotated[int | None, typer.Option(help="How many values of each member are shown.", min=1)] = None,
) -> None:
    """Count [event types](reference/event-types.md#facets) by owner, category, clean-up policy and label.

    Event types count as unused if nobody has published to them or read them for 30 days, or `--unused-days`.
    """
    found = session.client.event_types.facets(**asdict(filters), limit=limit)
    rows = [
        {"member": member, "value": each.value, "count": each.count}
        for member in FACETS
        for each in getattr(found, member).values
    ]
    if found.unused is not None:
        rows.append({"member": "unused", "value": f"for {found.unused.days} days", "count": found.unused.count})
    rows.append({"member": "total", "value": "", "count": found.total})
    session.output.items(rows, {"member": "member", "value": "value", "count": "count"})
    for member in FACETS:
        facet = getattr(found, member)
        session.output.note_left_out(len(facet.values), facet.distinct, f"values of {member}")
