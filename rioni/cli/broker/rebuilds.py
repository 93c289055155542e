"""Commands that show rebuilds of the read models."""

from typing import Annotated

import typer

from rioni.cli.connections.session import Session, connected
from rioni.domain.errors import NotFound


app = typer.Typer(name="rebuilds", no_args_is_help=True, help="How far rebuilds of the read models are.")

COLUMNS = {
    "id": "id",
    "state": "state",
    "phase": "phase",
    "done": "done",
    "of": "total",
    "started": "started_at",
    "updated": "updated_at",
    "into": "into",
    "detail": "detail",
}


@app.command("list", epilog="Example: rioni rebuilds list")
@connected
def list_rebuilds(session: Session) -> None:
    """Show the last 100 [rebuilds](reference/rebuilds.md), newest first."""
    session.output.items(session.client.rebuilds.list(), COLUMNS)


@app.command(epilog="Example: rioni rebuilds show")
@connected
def show(
    session: Session,
    rebuild: Annotated[str | None, typer.Argument(help="Id of the rebuild; by default the newest.")] = None,
) -> None:
    """Show a rebuild."""
    client = session.client.rebuilds
    if rebuild is None:
        found = client.list()
        if not found:
            raise NotFound(f"There was no rebuild on {session.client.url}.")
        rebuild = found[0].id
    session.output.item(client.get(rebuild))
