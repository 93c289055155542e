"""The command that writes models for events from schemas."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import Session, connected
from rioni.cli.terminal.output import write_file
from rioni.domain.errors import Invalid


app = typer.Typer()


@app.command(epilog="Example: rioni types order.created order.shipped --output events.py")
@connected
def types(
    session: Session,
    event_types: Annotated[
        list[str], typer.Argument(help="Event types.", metavar="EVENT_TYPE...", autocompletion=completions.event_types)
    ],
    *,
    style: Annotated[Literal["msgspec", "dataclass"], typer.Option(help="Of the classes.")] = "msgspec",
    formats: Annotated[
        bool, typer.Option(help="Whether texts with the format date-time, date or uuid get types of their own.")
    ] = True,
    output: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
) -> None:
    """Write models in Python for the events of event types, from their [schemas](reference/schemas.md).

    A class for each event type and for the objects in its events: [models of events](client/types.md). With `--json`
    the output is an object with the member `source`.
    """
    from rioni.client.codegen.event_models import event_models

    try:
        source = event_models(
            [session.client.event_types.get(name) for name in event_types], style=style, formats=formats
        )
    except ValueError as ex:
        raise Invalid(f"{ex}.") from ex
    if output is None:
        session.output.line({"source": source}, source.rstrip())
        return
    write_file(output, source)
    session.output.line({"file": str(output)}, f"Wrote {output}.")
