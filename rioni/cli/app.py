"""The command line: runs the command that the arguments name, and reports errors in one line.

The modules of commands, and those that do the work, are imported when a command is used: each one starts quickly.
"""

import os
from typing import Annotated

import typer
from typer import completion

from rioni import __version__
from rioni.cli.commands import Commands
from rioni.cli.terminal.output import say
from rioni.cli.terminal.running import run


COMPLETE = "_RIONI_COMPLETE"
"""The variable by which a shell asks for completions."""

app = typer.Typer(
    name="rioni",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command that `sys.argv` names, and exit."""
    if COMPLETE in os.environ:
        # Registers the shells, as Typer's own option `--show-completion` does.
        completion.get_completion_inspect_parameters()
    run(app, "rioni", complete_var=COMPLETE)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        say(f"rioni {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Rioni, an event broker that serves the Nakadi API.

    Commands that ask a broker take `--context`, `--url`, `--token`, `--ca-certificate`, `--timeout` and `--json` before
    their name as well as after it.
    """
    del version  # its callback has already handled it
