"""Commands that show, create, change and delete subscriptions."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import AsOf, SubscriptionId
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.definitions import editing, printing
from rioni.cli.definitions.editing import (
    Annotations,
    Attributes,
    DefinitionFile,
    Labels,
    asked,
    attributes,
    texts,
)
from rioni.cli.definitions.printing import attributes_of, pairs_of
from rioni.cli.options import Yes
from rioni.cli.terminal.output import confirm, say
from rioni.cli.terminal.tables import Column, client_of


if TYPE_CHECKING:
    from rioni.cli.definitions.definition import Definition


app = typer.Typer(name="subscriptions", no_args_is_help=True, help="Subscriptions: who reads, and how far they are.")

SEND_COUNT = "nakadi.zalando.org/subscription-max-event-send-count"
POLICY = "nakadi.zalando.org/subscription-unprocessable-event-policy"
POLICIES = {"skip": "SKIP_EVENT", "keep": "DEAD_LETTER_QUEUE"}
MEMBERS: dict[str, Column] = {
    "id": "id",
    "owning application": "owning_application",
    "consumer group": "consumer_group",
    "event types": "event_types",
    "read from": "read_from",
    "filter": "filter",
    "admins": lambda item: attributes_of(item, "admins"),
    "readers": lambda item: attributes_of(item, "readers"),
    "labels": lambda item: pairs_of(item["labels"]),
    "annotations": lambda item: pairs_of(item["annotations"]),
    "created": "created_at",
    "changed": "updated_at",
}
COLUMNS: dict[str, Column] = {
    "id": "id",
    "application": "owning_application",
    "group": "consumer_group",
    "event types": "event_types",
    "from": "read_from",
    "filter": "filter",
    "created": "created_at",
}


@app.command("list", epilog="Example: rioni subscriptions list --event-type order.created --status")
@connected
def list_subscriptions(
    session: BrokerSession,
    *,
    owning_application: Annotated[str | None, typer.Option(help="Only those of this application.")] = None,
    event_type: Annotated[
        list[str],
        typer.Option(
            help="Only those to this; may be repeated for all of them.", autocompletion=completions.event_types
        ),
    ] = [],  # noqa: B006 - never changed
    reader: Annotated[str | None, typer.Option(help="Only those that list it.", metavar="TYPE:VALUE")] = None,
    status: Annotated[bool, typer.Option("--status", help="Also how many streams read how many partitions.")] = False,
    as_of: AsOf = None,
) -> None:
    """Show the [subscriptions](reference/subscriptions.md) to which all that is given applies, newest first."""
    found = session.client.subscriptions.list(
        owning_application=owning_application, event_types=event_type, reader=reader, show_status=status, as_of=as_of
    )
    columns = {**COLUMNS, "partitions read": _partitions_read, "streams": _streams} if status else COLUMNS
    session.output.items(found, columns)


@app.command(
    epilog="Example: rioni subscriptions show 038fc871-1d2c-4e2e-aa29-1579e8f2e71f\n\n"
    "Example: rioni subscriptions show 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --yaml > subscription.yaml"
)
@connected
def show(
    session: BrokerSession,
    subscription: SubscriptionId,
    *,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print a definition that `apply` accepts.")] = False,
    as_of: AsOf = None,
) -> None:
    """Show a subscription; `rioni subscriptions lag` shows how far it is."""
    found = session.client.subscriptions.get(subscription, as_of=as_of)
    if yaml and not session.output.json:
        say(editing.as_yaml(found), end="")
    else:
        session.output.item(found, MEMBERS)


@app.command(
    epilog="Example: rioni subscriptions create --owning-application shop --event-type order.created\n\n"
    "Example: rioni subscriptions create --owning-application shop --event-type order.created "
    "--filter 'event.total > 1000.0' --send-at-most 3 --unprocessable keep"
)
@connected
def create(
    session: BrokerSession,
    *,
    file: DefinitionFile = None,
    owning_application: Annotated[str | None, typer.Option(help="Application that it belongs to.")] = None,
    event_type: Annotated[
        list[str],
        typer.Option(help="Event type to read; may be repeated.", autocompletion=completions.event_types),
    ] = [],  # noqa: B006 - never changed
    consumer_group: Annotated[
        str | None, typer.Option(help="Distinguishes the subscriptions of one application.")
    ] = None,
    read_from: Annotated[str | None, typer.Option(help="`begin` or `end`.")] = None,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", help="Only events for which this CEL expression over `event` is true.", metavar="CEL"),
    ] = None,
    send_at_most: Annotated[
        int | None, typer.Option(help="How often an event is sent that is not committed.", min=2, max=10)
    ] = None,
    unprocessable: Annotated[
        str | None,
        typer.Option(
            help="Action after the last attempt: `skip` the event, or `keep` it as a dead letter.", metavar="skip|keep"
        ),
    ] = None,
    admin: Attributes = [],  # noqa: B006 - never changed
    reader: Attributes = [],  # noqa: B006 - never changed
    label: Labels = [],  # noqa: B006 - never changed
    annotation: Annotations = [],  # noqa: B006 - never changed
) -> None:
    """Create a subscription, unless there is one, and print its id.

    The same owning application, consumer group and event types are the same subscription: the command may be repeated.
    If an existing subscription differs from the request, the differences are reported on stderr, and nothing is
    changed.
    """
    given = {
        "owning_application": owning_application,
        "event_types": event_type or None,
        "consumer_group": consumer_group,
        "read_from": read_from,
        "filter": filter_,
        "authorization": attributes(admins=admin, readers=reader),
        "labels": texts(label),
        "annotations": (texts(annotation) or {}) | _dead_letter_policy(send_at_most, unprocessable) or None,
    }
    _create(session, asked("subscription", file, given))


@app.command(epilog="Example: rioni subscriptions edit 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def edit(session: BrokerSession, subscription: SubscriptionId, *, yes: Yes = False) -> None:
    """Change authorization, annotations, labels and filter in an editor, as `rioni event-types edit` does."""
    editing.edit(session, lambda: session.client.subscriptions.get(subscription), yes=yes)


@app.command(epilog="Example: rioni subscriptions delete 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def delete(session: BrokerSession, subscription: SubscriptionId, *, yes: Yes = False) -> None:
    """Delete a subscription and its cursors; its streams end. What it has read cannot be found out afterwards."""
    found = session.client.subscriptions.get(subscription)
    if not yes:
        streams = _stream_ids(session, subscription)
        confirm(
            f"Delete the subscription of {found.owning_application}/{found.consumer_group} to "
            f"{', '.join(found.event_types)} on {session.connection.url}? "
            f"It has {printing.counted(len(streams), 'stream')}.",
            yes=False,
        )
    session.client.subscriptions.delete(subscription)
    session.output.line({"id": subscription}, f"The subscription {subscription} is deleted.")


@app.command("close-stream", epilog="Example: rioni subscriptions close-stream 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def close_stream(
    session: BrokerSession,
    subscription: SubscriptionId,
    stream: Annotated[
        str | None, typer.Argument(help="Id of the stream, as `rioni subscriptions lag` shows it; by default all.")
    ] = None,
) -> None:
    """End streams; their partitions go to the other streams, and their clients may open new ones."""
    wanted = sorted(_stream_ids(session, subscription)) if stream is None else [stream]
    for each in wanted:
        session.client.subscriptions.close_stream(subscription, each)
        session.output.line({"id": subscription, "stream_id": each}, f"The stream {each} is closed.")
    if not wanted:
        session.output.note("None found.")


@app.command("ended-streams", epilog="Example: rioni subscriptions ended-streams 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def ended_streams(session: BrokerSession, subscription: SubscriptionId) -> None:
    """Show [why streams ended](reference/streams.md#end-reasons) in the last 90 days, those that ended last first."""
    columns: dict[str, Column] = {
        "client": client_of,
        "reason": "reason",
        "streams": "count",
        "first": "first_at",
        "last": "last_at",
    }
    session.output.items(session.client.subscriptions.ended_streams(subscription), columns)


def _stream_ids(session: BrokerSession, subscription: str) -> set[str]:
    return {
        partition.stream_id
        for each in session.client.subscriptions.stats(subscription)
        for partition in each.partitions
        if partition.stream_id
    }


def _create(session: BrokerSession, wanted: "Definition") -> None:
    import msgspec

    from rioni.cli.definitions import planning
    from rioni.cli.definitions.definition import dotted
    from rioni.client import Subscription

    current = planning.current_of(session.client, wanted)
    step = planning.planned(session.client, wanted, current)
    # The broker returns an existing subscription as it is.
    found = session.client.subscriptions.create(Subscription.of(step.before or step.after or {}))
    session.output.note("The subscription is created." if current is None else "The subscription existed.")
    differing = sorted({dotted(each.path[:1]) for each in step.changes}) if current is not None else []
    warnings = [note for note in step.notes if note.startswith(planning.WARNING)] if current is None else []
    for warning in warnings:
        session.output.note(f"{warning[:1].upper()}{warning[1:]}.")
    notes = [note for note in step.notes if not note.startswith(planning.WARNING)]
    for note in [*notes, *(f"its {name} is another one" for name in differing)]:
        session.output.note(f"Nothing is changed: {note}.")
    session.output.line(msgspec.to_builtins(found) | {"existed": current is not None}, found.id)


def _dead_letter_policy(send_at_most: int | None, unprocessable: str | None) -> dict[str, str]:
    if send_at_most is None and unprocessable is None:
        return {}
    if send_at_most is None or unprocessable not in POLICIES:
        raise typer.BadParameter("--send-at-most and --unprocessable skip|keep are given together")
    return {SEND_COUNT: str(send_at_most), POLICY: POLICIES[unprocessable]}


def _partitions(item: Any) -> list[Any]:
    return [partition for each in item["status"] or () for partition in each["partitions"]]


def _partitions_read(item: Any) -> str:
    partitions = _partitions(item)
    return f"{sum(bool(each['stream_id']) for each in partitions)} of {len(partitions)}"


def _streams(item: Any) -> int:
    return len({each["stream_id"] for each in _partitions(item)} - {""})
