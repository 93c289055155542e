"""Commands about the settings."""

import sys

import typer

from rioni.cli.host.options import ConfigFile
from rioni.cli.output import console_on
from rioni.cli.tables import plain_table
from rioni.config.loading import load
from rioni.config.settings import SETTINGS


app = typer.Typer(name="config", no_args_is_help=True, help="Look at the settings.")


@app.command("show", epilog="Example: RIONI_PORT=8081 rioni config show")
def config_show(*, config_file: ConfigFile = None) -> None:
    """Show every setting, its value, and where the value comes from."""
    loaded = load(file=config_file)
    table = plain_table("setting", "value", "source")
    for setting in SETTINGS.values():
        value = setting.show(getattr(loaded.config, setting.name))
        table.add_row(setting.name, value, loaded.sources[setting.name])
    console_on(sys.stdout).print(table)
