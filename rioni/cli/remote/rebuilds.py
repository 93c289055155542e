"""Commands that show rebuilds of the read models."""

from typing import Annotated

import typer

from rioni.cli.session import Session, connected


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


@app.command(epilog="Example: rioni rebuilds show 2f6c9f6e-3b1c-4a52-9d3c-0a7c3e4ab1f7")
@connected
def show(session: Session, rebuild: Annotated[str, typer.Argument(help="Id of the rebuild.")]) -> None:
    """Show a rebuild."""
    session.output.item(session.client.rebuilds.get(rebuild))
