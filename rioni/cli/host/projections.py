"""Commands about read models that were built beside the live ones."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.output import console_on, opened
from rioni.cli.tables import plain_table


if TYPE_CHECKING:
    from rioni.projections.generations.generation import Known


app = typer.Typer(name="projections", help="Read models that were built beside the live ones.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the read models.")]


@app.command("list", epilog="Example: rioni projections list --data /srv/rioni")
def list_projections(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object a line.")] = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Show the read models that there are: live, previous, and those built by `rioni rebuild --into`.

    Each with the position that it shows, the version of the fold, and its tables.
    """
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    found = list(rebuild_operations.projections(settings))
    with opened(None) as file:
        if as_json:
            for each in found:
                shown = {"name": each.name, "position": each.position, "fold": each.fold, "tables": [*each.tables]}
                file.write(json.dumps(shown | {"created_at": each.created_at or None}) + "\n")
            return
        table = plain_table("name", "position", "fold", "created", "tables")
        for each in found:
            table.add_row(each.name, f"{each.position:,}", str(each.fold), each.created_at, " ".join(each.tables))
        console_on(file).print(table)


@app.command(epilog="Example: rioni projections promote green")
def promote(name: Name, *, data: Data = None, config_file: ConfigFile = None) -> None:
    """Bring read models up to date and make them live; those that were live are kept as `previous`."""
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    _say_live(rebuild_operations.promote(settings, name))


@app.command(epilog="Example: rioni projections rollback")
def rollback(*, data: Data = None, config_file: ConfigFile = None) -> None:
    """Make those read models live again that were live before, up to date."""
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    _say_live(rebuild_operations.rollback(settings))


@app.command(epilog="Example: rioni projections drop green")
def drop(name: Name, *, data: Data = None, config_file: ConfigFile = None) -> None:
    """Remove read models that are not live; `new` is what an interrupted rebuild has left."""
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    rebuild_operations.drop(settings, name)
    typer.echo(f"{name} is removed.")


def _say_live(found: "Known") -> None:
    typer.echo(f"{found.name} is live, and what was live before is `previous`: {', '.join(found.tables)}.")
