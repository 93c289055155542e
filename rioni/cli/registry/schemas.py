"""Commands for the versions of schemas."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rioni.cli.connections.options import AsOf, EventTypeName, read_json
from rioni.cli.connections.session import Session, connected
from rioni.cli.terminal.exit_codes import FOUND
from rioni.cli.terminal.output import as_sentence
from rioni.cli.terminal.tables import indented


if TYPE_CHECKING:
    from rioni.client import Schema

app = typer.Typer(name="schemas", no_args_is_help=True, help="Versions of the schemas of event types.")

SchemaFile = Annotated[Path, typer.Argument(help="File with the schema as JSON; - is standard input.", metavar="FILE")]
Kind = Annotated[Literal["json_schema", "avro_schema"], typer.Option("--type", help="Of the schema.")]
COLUMNS = {"version": "version", "created": "created_at", "type": "type", "schema": "schema"}


@app.command("list", epilog="Example: rioni schemas list order.created")
@connected
def list_schemas(session: Session, event_type: EventTypeName, *, as_of: AsOf = None) -> None:
    """Show all versions of the [schema](reference/schemas.md) of an event type, newest first."""
    session.output.items(session.client.schemas.list(event_type, as_of=as_of), COLUMNS)


@app.command(epilog="Example: rioni schemas show order.created 1.0.0 > schema.json")
@connected
def show(
    session: Session,
    event_type: EventTypeName,
    version: Annotated[str, typer.Argument(help="The version.")] = "latest",
    *,
    as_of: AsOf = None,
) -> None:
    """Show a version of the schema of an event type; without `--json` only the schema, in several lines."""
    found = session.client.schemas.get(event_type, version, as_of=as_of)
    session.output.line(found, indented(found.schema))


@app.command(epilog="Example: rioni schemas add order.created schema.json")
@connected
def add(session: Session, event_type: EventTypeName, file: SchemaFile, *, kind: Kind = "json_schema") -> None:
    """Add a version of the schema, if the compatibility mode of the event type allows the change."""
    import msgspec

    from rioni.cli.publishing.schema_paths import filters_that_lose

    schema = _schema(file, kind)
    before = session.client.event_types.get(event_type)
    lost = filters_that_lose(session.client, before, msgspec.structs.replace(before, schema=schema))
    # Nakadi does not answer with the version.
    found = session.client.schemas.add(event_type, schema) or session.client.schemas.get(event_type)
    for warning in lost:
        session.output.note(f"Warning: {as_sentence(warning)}")
    session.output.line(found, f"{event_type} has the schema as version {found.version}.")


@app.command(epilog="Example: rioni schemas find order.created schema.json")
@connected
def find(session: Session, event_type: EventTypeName, file: SchemaFile, *, kind: Kind = "json_schema") -> None:
    """Show which version has this schema."""
    found = session.client.schemas.find(event_type, _schema(file, kind))
    session.output.line(found, f"{event_type} has the schema as version {found.version}.")


@app.command(epilog="Example: rioni schemas check order.created schema.json")
@connected
def check(
    session: Session,
    event_type: EventTypeName,
    file: SchemaFile,
    *,
    version: Annotated[str, typer.Option(help="Compare with this version.")] = "latest",
    kind: Kind = "json_schema",
) -> None:
    """Check whether a schema may follow a version, and change nothing; exit code 1 if it may not."""
    found = session.client.schemas.check(event_type, _schema(file, kind), version)
    said = f"with version {found.validated_against_version}, mode {found.compatibility_mode}"
    reason = f": {found.error}" if found.error else ""
    session.output.line(found, f"{'Compatible' if found.compatible else 'Not compatible'} {said}{reason}")
    if not found.compatible:
        raise typer.Exit(FOUND)


def _schema(file: Path, kind: str) -> "Schema":
    from rioni.client import Schema

    return Schema(schema=json.dumps(read_json(file), ensure_ascii=False), type=kind)
