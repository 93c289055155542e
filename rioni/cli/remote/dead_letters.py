"""Commands for dead letters of a broker that runs."""

from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from rioni.cli.remote.servers import server
from rioni.cli.session import Session, connected


app = typer.Typer(
    name="dead-letters", no_args_is_help=True, help="Events that the consumers of a subscription never commit."
)

SubscriptionId = Annotated[str, typer.Argument(help="Id of the subscription.")]
FromEventType = Annotated[str | None, typer.Option("--event-type", help="Only events of this event type.")]
FromPartition = Annotated[str | None, typer.Option("--partition", help="Only events of this partition.")]
FromOffset = Annotated[str | None, typer.Option(help="Only events from this offset on.")]
ToOffset = Annotated[str | None, typer.Option(help="Only events up to this offset.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]


@app.command("list", epilog="Example: rioni dead-letters list 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
@connected
def dead_letters_list(
    session: Session,
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    limit: Limit = 20,
) -> None:
    """Show dead letters, oldest first, one line of JSON each."""
    import orjson

    wanted = _given(event_type=event_type, partition=partition, from_offset=from_offset, to_offset=to_offset)
    query = urlencode(wanted | {"limit": limit})
    answer = _ask(session, "GET", f"/subscriptions/{quote(subscription, safe='')}/dead-letters?{query}")
    for item in answer["items"]:
        typer.echo(orjson.dumps(item))


@app.command("redrive", epilog="Example: rioni dead-letters redrive 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --partition 0")
@connected
def dead_letters_redrive(
    session: Session,
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    limit: Limit = 1_000,
    force: Annotated[bool, typer.Option("--force", help="Also those that were published again before.")] = False,
) -> None:
    """Publish dead letters again, for their subscription alone."""
    wanted = _given(event_type=event_type, partition=partition, from_offset=from_offset, to_offset=to_offset)
    body = wanted | {"limit": limit, "force": force}
    answer = _ask(session, "POST", f"/subscriptions/{quote(subscription, safe='')}/dead-letters/redrive", body)
    session.output.line(
        answer,
        f"{answer['redriven']} redriven, {answer['already_redriven']} already redriven, "
        f"{answer['without_event_type']} without an event type",
    )


def _given(**options: str | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _ask(session: Session, method: str, path: str, body: Any = None) -> Any:
    from rioni.tools.api_client import call

    return call(server(session.connection), method, path, body)[1]
