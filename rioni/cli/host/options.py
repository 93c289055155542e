"""Options of the commands on a host, and the settings that options and files make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rioni.config.loading import load
from rioni.config.settings import SETTINGS, Config
from rioni.files.plain import check_folder


ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with settings.", metavar="FILE")]
Data = Annotated[Path | None, typer.Option(help=SETTINGS["data"].description)]
Port = Annotated[int | None, typer.Option(help=SETTINGS["port"].description)]


def load_settings(file: Path | None, *, restoring: bool = False, **flags: object) -> Config:
    """Load the settings of a command, and set up logging with them.

    Args:
        file: of settings; None for the default one.
        restoring: whether the command replaces the files of the data directory.
        flags: values of options by setting; None if an option was not given.
    """
    from rioni.config import logs as logging_setup

    settings = load(flags, file=file).config
    if "data" in flags:
        check_folder(settings.data, with_links=not restoring)
    logging_setup.configure(settings)
    return settings


Master = Annotated[str, typer.Option(help="Master of Spark, as for spark-submit, or sc://host:port; default: local.")]
SparkConf = Annotated[
    list[str], typer.Option("--conf", help="A setting of Spark; may be repeated.", metavar="NAME=VALUE")
]
Scratch = Annotated[Path | None, typer.Option(help="Folder for temporary files; by default in the data.")]


def spark_settings(texts: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Names and values of settings of Spark; raises BadParameter."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text} is not a setting of Spark: name=value", param_hint="--conf")
        found.append((name, value))
    return found
