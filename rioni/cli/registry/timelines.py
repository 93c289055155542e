"""Commands for the timelines of event types."""

from typing import Annotated

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import AsOf, EventTypeName
from rioni.cli.connections.session import Session, connected


app = typer.Typer(name="timelines", no_args_is_help=True, help="In which storages the events of an event type are.")


@app.command("list", epilog="Example: rioni timelines list order.created")
@connected
def list_timelines(session: Session, event_type: EventTypeName, *, as_of: AsOf = None) -> None:
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


@app.command(epilog="Example: rioni timelines create order.created archive")
@connected
def create(
    session: Session,
    event_type: EventTypeName,
    storage: Annotated[str, typer.Argument(help="Id of the storage.", autocompletion=completions.storages)],
) -> None:
    """Begin a timeline in a storage, in which new events go from then on; waits until they do."""
    session.client.timelines.create(event_type, storage)
    active = session.client.timelines.list(event_type)[-1]
    session.output.line(active, f"New events of {event_type} go to timeline {active.order} in {active.storage_id}.")
