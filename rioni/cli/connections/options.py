"""Arguments and options that several commands over HTTP share, and JSON that the user gives."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rioni.cli.connections import completions
from rioni.cli.terminal.times import moment
from rioni.domain.errors import Invalid
from rioni.files.plain import read_file


EventTypeName = Annotated[str, typer.Argument(help="Name of the event type.", autocompletion=completions.event_types)]
SubscriptionId = Annotated[
    str,
    typer.Argument(
        help="Id of the subscription, or its OWNING_APPLICATION/CONSUMER_GROUP.",
        autocompletion=completions.subscriptions,
    ),
]
Category = Annotated[Literal["business", "data", "undefined"] | None, typer.Option(help="Of the events.")]
CleanupPolicy = Annotated[
    Literal["delete", "compact", "compact_and_delete"] | None, typer.Option(help="How old events are removed.")
]
UnusedDays = Annotated[int | None, typer.Option(help="Only those that nobody used for so many days.", min=1, max=90)]
AsOf = Annotated[
    str | None,
    typer.Option(
        help="As it was then: a position of the log, an RFC 3339 time, or a day in UTC.",
        metavar="MOMENT",
        parser=lambda text: str(moment(text)),
    ),
]
"""Pass it as it is: `as_of=as_of`."""


def read_json(file: Path) -> Any:
    """The JSON value in a file; `-` is standard input.

    Raises:
        Invalid: it can't be read, is not JSON, or has values that would be changed.
    """
    from rioni.cli.terminal.json_text import json_values
    from rioni.cli.terminal.yaml_text import NotYaml

    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else read_file(file)
        values = list(json_values(content.decode("utf-8-sig")))
    except OSError as ex:
        raise Invalid(f"{file} can't be read: {ex.strerror}.") from ex
    except UnicodeDecodeError as ex:
        line = content.count(b"\n", 0, ex.start) + 1
        raise Invalid(f"{file}:{line}: is not UTF-8.") from ex
    except NotYaml as ex:
        raise Invalid(f"{file}:{ex.line}: {ex.reason}.") from ex
    if len(values) != 1:
        raise Invalid(f"{file} has {len(values)} JSON values instead of one.")
    return values[0].value
