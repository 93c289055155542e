"""Commands that show archives and backups."""

from typing import Annotated, Literal

import typer

from rioni.cli.connections.session import Session, connected
from rioni.cli.terminal.tables import Column, client_of


app = typer.Typer(name="jobs", no_args_is_help=True, help="How far archives and backups are.")

COLUMNS: dict[str, Column] = {
    "kind": "kind",
    "to": "name",
    "state": "state",
    "phase": "phase",
    "done": "done",
    "of": "total",
    "started": "started_at",
    "updated": "updated_at",
    "client": client_of,
    "detail": "detail",
}


@app.command("list", epilog="Example: rioni jobs list --kind backup")
@connected
def list_jobs(
    session: Session,
    kind: Annotated[Literal["archive", "backup"] | None, typer.Option(help="Only jobs of this kind.")] = None,
) -> None:
    """Show the last 100 [archives and backups](reference/jobs.md) of each kind, those first that changed last."""
    session.output.items(session.client.jobs.list(kind), COLUMNS)
