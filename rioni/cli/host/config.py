"""Commands about the settings."""

import typer

from rioni.cli.host.options import ConfigFile
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output
from rioni.config.loading import load
from rioni.config.settings import SETTINGS


app = typer.Typer(name="config", no_args_is_help=True, help="Look at the settings.")


@app.command("show", epilog="Example: RIONI_PORT=8081 rioni config show")
def config_show(*, config_file: ConfigFile = None, json: Json = False) -> None:
    """Show every setting, its value, and where the value comes from."""
    loaded = load(file=config_file)
    shown = (
        {"setting": name, "value": setting.show(getattr(loaded.config, name)), "source": loaded.sources[name]}
        for name, setting in SETTINGS.items()
    )
    Output(json).items(shown, {"setting": "setting", "value": "value", "source": "source"})
