"""Arguments and options that several commands over HTTP share, and what users give in them: JSON, and names."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import typer

from rioni.cli.connections import completions
from rioni.cli.options import moment
from rioni.domain.errors import Invalid
from rioni.domain.texts import first_of, proposal
from rioni.files.plain import read_file


if TYPE_CHECKING:
    from rioni.client import Client, Subscription


# --- Arguments and options that several commands over HTTP share, and JSON that the user gives ---

EventTypeName = Annotated[str, typer.Argument(help="Name of the event type.", autocompletion=completions.event_types)]
SubscriptionId = Annotated[
    str,
    typer.Argument(
        help="Id of the subscription, or its OWNING_APPLICATION/CONSUMER_GROUP.",
        autocompletion=completions.subscriptions,
    ),
]
Category = Annotated[Literal["business", "data", "undefined"] | None, typer.Option(help="Category of the events.")]
CleanupPolicy = Annotated[
    Literal["delete", "compact", "compact_and_delete"] | None, typer.Option(help="How old events are removed.")
]
UnusedDays = Annotated[
    int | None, typer.Option(help="Only those that nobody has used for this many days.", min=1, max=90)
]
AsOf = Annotated[
    str | None,
    typer.Option(
        help="Show the state at a position of the log, an RFC 3339 time, or a day in UTC.",
        metavar="MOMENT",
        parser=lambda text: str(moment(text)),
    ),
]
"""Pass it as it is: `as_of=as_of`."""


def read_json(file: Path) -> Any:
    """The JSON value in a file; `-` is standard input.

    Raises:
        Invalid: it can't be read, is not JSON, or has values that would be changed.
    """
    from rioni.cli.terminal.json_and_yaml import NotYaml, json_values

    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else read_file(file)
        values = list(json_values(content.decode("utf-8-sig")))
    except OSError as ex:
        raise Invalid(f"{file} can't be read: {ex.strerror}.") from ex
    except UnicodeDecodeError as ex:
        line = content.count(b"\n", 0, ex.start) + 1
        raise Invalid(f"{file}:{line}: is not UTF-8.") from ex
    except NotYaml as ex:
        raise Invalid(f"{file}:{ex.line}: {ex.reason}.") from ex
    if len(values) != 1:
        raise Invalid(f"{file} has {len(values)} JSON values instead of one.")
    return values[0].value


# --- Finds a subscription that users name by its owning application and consumer group ---

CANDIDATES_SHOWN = 10


def subscription_id(client: "Client", text: str, *, as_of: str | None = None) -> str:
    """The id of a subscription that a user names: its id, or `owning_application/consumer_group`.

    Args:
        client: of the broker, which is asked only for names.
        text: of the user.
        as_of: a position of the log, or a time, at which the subscription has the name.

    Raises:
        Invalid: there is no subscription of this name, or more than one.
        ClientError: the broker does not answer.
    """
    if _is_id(text) or "/" not in text:
        return text
    # Both parts may have slashes.
    parts = text.split("/")
    owners = ["/".join(parts[:end]) for end in range(1, len(parts))]
    found = [
        each
        for owner in owners
        for each in client.subscriptions.list(owning_application=owner, as_of=as_of)
        if _name(each) == text
    ]
    if len(found) == 1:
        return found[0].id
    if found:
        ids = first_of([f"{each.id} ({', '.join(each.event_types)})" for each in found], CANDIDATES_SHOWN)
        raise Invalid(f"There are {len(found)} subscriptions {text}; give the id of one: {ids}.")
    names = (_name(each) for each in client.subscriptions.list(as_of=as_of))
    raise Invalid(f"There is no subscription {text}{proposal(text, names)}")


def check_event_type(client: "Client", name: str) -> None:
    """Check that there is an event type; raises Invalid."""
    from rioni.client import NotFound

    try:
        client.event_types.get(name)
    except NotFound as ex:
        known = (each.name for each in client.event_types.list())
        raise Invalid(f"There is no event type {name} on {client.url}{proposal(name, known)}") from ex


def check_reads(subscription: "Subscription", event_type: str) -> None:
    """Check that a subscription reads an event type; raises Invalid."""
    names = subscription.event_types
    if event_type not in names:
        known = f"; it reads {first_of(names, CANDIDATES_SHOWN)}."
        raise Invalid(f"The subscription does not read {event_type}{proposal(event_type, names, known)}")


def _name(subscription: "Subscription") -> str:
    return f"{subscription.owning_application}/{subscription.consumer_group}"


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
