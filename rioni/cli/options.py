"""Options that commands of all kinds share."""

from typing import Annotated

import typer


PANEL = "Connection and output"
"""The heading of the options that all commands over HTTP have."""

SECONDS_MAX, DAYS_MAX = 31_536_000, 36_500
"""A year and a hundred years; the operating system and the calendar end somewhere behind them."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value a line.", rich_help_panel=PANEL)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
