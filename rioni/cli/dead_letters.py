"""Commands for dead letters of a broker that runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from rioni.cli.options import DEFAULT_URL, CaCertificate, Token, Url


app = typer.Typer(no_args_is_help=True, help="Events that the consumers of a subscription never commit.")

SubscriptionId = Annotated[str, typer.Argument(help="Id of the subscription.")]
FromEventType = Annotated[str | None, typer.Option("--event-type", help="Only events of this event type.")]
FromPartition = Annotated[str | None, typer.Option("--partition", help="Only events of this partition.")]
FromOffset = Annotated[str | None, typer.Option(help="Only events from this offset on.")]
ToOffset = Annotated[str | None, typer.Option(help="Only events up to this offset.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]


@app.command("list", epilog="Example: rioni dead-letters list 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
def dead_letters_list(
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca_certificate: CaCertificate = None,
) -> None:
    """Show dead letters, oldest first, one line of JSON each."""
    import orjson

    wanted = _given(event_type=event_type, partition=partition, from_offset=from_offset, to_offset=to_offset)
    query = urlencode(wanted | {"limit": limit})
    path = f"/subscriptions/{quote(subscription, safe='')}/dead-letters?{query}"
    answer = _asked(url, token, ca_certificate)("GET", path)
    for item in answer["items"]:
        typer.echo(orjson.dumps(item))


@app.command("redrive", epilog="Example: rioni dead-letters redrive 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --partition 0")
def dead_letters_redrive(
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    limit: Limit = 1_000,
    force: Annotated[bool, typer.Option("--force", help="Also those that were published again before.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca_certificate: CaCertificate = None,
) -> None:
    """Publish dead letters again, for their subscription alone."""
    wanted = _given(event_type=event_type, partition=partition, from_offset=from_offset, to_offset=to_offset)
    body = wanted | {"limit": limit, "force": force}
    path = f"/subscriptions/{quote(subscription, safe='')}/dead-letters/redrive"
    answer = _asked(url, token, ca_certificate)("POST", path, body)
    typer.echo(
        f"{answer['redriven']} redriven, {answer['already_redriven']} already redriven, "
        f"{answer['without_event_type']} without an event type"
    )


def _given(**options: str | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _asked(url: str, token: str | None, ca_certificate: Path | None) -> Callable[..., Any]:
    """What asks a broker: `ask(method, path, body)` returns the JSON of the answer."""
    from rioni.tools.api_client import call
    from rioni.tools.load_client import Server

    server = Server(url, token, ca_certificate)
    return lambda *request: call(server, *request)[1]
