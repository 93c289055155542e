"""Commands about read models that were built beside the live ones."""

from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output


if TYPE_CHECKING:
    from rioni.projections.generations.generation import Known


app = typer.Typer(name="projections", help="Read models that were built beside the live ones.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the read models.")]


@app.command("list", epilog="Example: rioni projections list --data /srv/rioni")
def list_projections(
    *,
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Show the read models that there are: live, previous, and those built by `rioni rebuild --into`.

    Each with the position that it shows, the version of the fold, and its tables.
    """
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    shown = (
        {
            "name": each.name,
            "position": each.position,
            "fold": each.fold,
            "tables": [*each.tables],
            "created_at": each.created_at or None,
        }
        for each in rebuild_operations.projections(settings)
    )
    columns = {"name": "name", "position": "position", "fold": "fold", "created": "created_at"}
    Output(json).items(shown, columns | {"tables": lambda item: " ".join(item["tables"])})


@app.command(epilog="Example: rioni projections promote green")
def promote(name: Name, *, data: Data = None, config_file: ConfigFile = None, json: Json = False) -> None:
    """Bring read models up to date and make them live; those that were live are kept as `previous`."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    _say_live(rebuild_operations.promote(settings, name), json=json)


@app.command(epilog="Example: rioni projections rollback")
def rollback(*, data: Data = None, config_file: ConfigFile = None, json: Json = False) -> None:
    """Make those read models live again that were live before, up to date."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    _say_live(rebuild_operations.rollback(settings), json=json)


@app.command(epilog="Example: rioni projections drop green")
def drop(name: Name, *, data: Data = None, config_file: ConfigFile = None, json: Json = False) -> None:
    """Remove read models that are not live; `new` is what an interrupted rebuild has left."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    rebuild_operations.drop(settings, name)
    Output(json).line({"name": name}, f"{name} is removed.")


def _say_live(found: "Known", *, json: bool) -> None:
    Output(json).line(
        {"name": found.name, "tables": [*found.tables]},
        f"{found.name} is live, and what was live before is `previous`: {', '.join(found.tables)}.",
    )
