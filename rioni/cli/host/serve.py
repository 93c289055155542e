"""Commands that run a broker or a demo, and show the settings that a broker would have."""

from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, Port, load_settings
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output
from rioni.config.loading import load
from rioni.config.settings import SETTINGS


# --- Commands that run a broker: serve and demo ---

app = typer.Typer()


@app.command(epilog="Example: rioni serve --port 8081 --data /srv/rioni --workers 4")
def serve(
    *,
    host: Annotated[str | None, typer.Option(help=SETTINGS["host"].description)] = None,
    port: Port = None,
    data: Data = None,
    workers: Annotated[int | None, typer.Option(help=SETTINGS["workers"].description)] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help=SETTINGS["tls_certificate"].description)] = None,
    tls_key: Annotated[Path | None, typer.Option(help=SETTINGS["tls_key"].description)] = None,
    allow_unauthenticated: Annotated[
        bool, typer.Option("--allow-unauthenticated", help=SETTINGS["allow_unauthenticated"].description)
    ] = False,
    config_file: ConfigFile = None,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM.

    On an address that other machines can reach it needs an [`auth_mode`](operating/security.md), or
    `--allow-unauthenticated`. With `--tls-certificate` and `--tls-key` it speaks [HTTPS](operating/security.md#tls). At
    shutdown, streams end with a last batch that says so. A second server on the same data directory refuses to start.
    All settings are in [the configuration](operating/configuration.md).
    """
    settings = load_settings(
        config_file,
        host=host,
        port=port,
        data=data,
        workers=workers,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        allow_unauthenticated=allow_unauthenticated or None,
    )
    from rioni.server.processes import serve as run

    run(settings)


@app.command(epilog="Example: rioni demo --flights 20000 --exit")
def demo(
    *,
    port: Port = None,
    data: Data = None,
    flights: Annotated[int | None, typer.Option(min=1, help="Publish only the first flights of the year.")] = None,
    exit_after: Annotated[bool, typer.Option("--exit", help="End after the report instead of serving on.")] = False,
    config_file: ConfigFile = None,
) -> None:
    """Publish, consume, audit and rebuild a year of real flights, checking every promise on the way.

    Starts the broker, publishes a year of real flights, consumes them through a subscription with commits, verifies
    completeness and order, archives the flights as a [Delta table](operating/archive.md) and counts them with SQL,
    shows the audit trail, rebuilds all read models with Spark, and leaves the broker serving. Needs `rioni[demo]` and
    Java.
    """
    settings = load_settings(config_file, data=data, port=port)
    from rioni.cli.host.demo import run

    run(settings, exit_after=exit_after, flights=flights)


# --- Commands about the settings ---

config_app = typer.Typer(name="config", no_args_is_help=True, help="Look at the settings.")


@config_app.command("show", epilog="Example: RIONI_PORT=8081 rioni config show")
def config_show(*, config_file: ConfigFile = None, json: Json = False) -> None:
    """Show every setting, its value, and where the value comes from."""
    loaded = load(file=config_file)
    shown = (
        {"setting": name, "value": setting.show(getattr(loaded.config, name)), "source": loaded.sources[name]}
        for name, setting in SETTINGS.items()
    )
    Output(json).items(shown, {"setting": "setting", "value": "value", "source": "source"})
