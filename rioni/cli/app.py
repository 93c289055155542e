"""The command line: parses options, runs the operation, and reports errors in one line.

The modules that do the work are imported by the commands, so that each one starts quickly.
"""

import sys
from typing import Annotated

import typer

from rioni import __version__
from rioni.cli import (
    archive,
    audit,
    backup,
    bench,
    cluster,
    config,
    dead_letters,
    operations,
    projections,
    serve,
    witness,
)
from rioni.cli.options import FAILED
from rioni.domain.errors import RioniError


app = typer.Typer(name="rioni", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(serve.app)
app.add_typer(operations.app)
app.add_typer(projections.app)
app.add_typer(projections.projections, name="projections")
app.add_typer(backup.app)
app.add_typer(audit.app, name="audit")
app.add_typer(witness.app)
app.add_typer(archive.app)
app.add_typer(bench.app, name="bench")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(config.app, name="config")
app.add_typer(cluster.app, name="cluster")


def main() -> None:
    """Run the command that `sys.argv` names, and exit."""
    try:
        app(prog_name="rioni")
    except RioniError as ex:
        typer.echo("\n".join([f"Error: {ex}", *getattr(ex, "__notes__", ())]), err=True)
        sys.exit(FAILED)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        typer.echo(f"rioni {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Rioni, an event broker that serves the Nakadi API."""
    del version  # its callback has seen to it
