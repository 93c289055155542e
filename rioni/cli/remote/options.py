"""Arguments and options that several commands over HTTP share, and JSON that the user gives."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rioni.cli import completions
from rioni.cli.times import moment
from rioni.domain.errors import Invalid


EventTypeName = Annotated[str, typer.Argument(help="Name of the event type.", autocompletion=completions.event_types)]
SubscriptionId = Annotated[
    str, typer.Argument(help="Id of the subscription.", autocompletion=completions.subscriptions)
]
CleanupPolicy = Annotated[str | None, typer.Option(help="`delete`, `compact` or `compact_and_delete`.")]
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
    """The JSON in a file; `-` is standard input.

    Raises:
        Invalid: it can't be read, or is not JSON.
    """
    import msgspec

    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return msgspec.json.decode(content)
    except OSError as ex:
        raise Invalid(f"{file} can't be read: {ex.strerror}.") from ex
    except (msgspec.DecodeError, RecursionError) as ex:
        raise Invalid(f"{file} is not JSON: {ex}.") from ex
