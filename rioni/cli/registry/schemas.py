"""Commands for schemas: their versions, models of their events, and what all event types share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import AsOf, EventTypeName, read_json
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import as_sentence, write_file
from rioni.cli.terminal.tables import indented
from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.client import Schema


# --- Commands for the versions of schemas ---

app = typer.Typer(name="schemas", no_args_is_help=True, help="Versions of the schemas of event types.")

SchemaFile = Annotated[Path, typer.Argument(help="File with the schema as JSON; - is standard input.", metavar="FILE")]
Kind = Annotated[Literal["json_schema", "avro_schema"], typer.Option("--type", help="Type of the schema.")]
COLUMNS = {"version": "version", "created": "created_at", "type": "type", "schema": "schema"}


@app.command("list", epilog="Example: rioni schemas list order.created")
@connected
def list_schemas(session: BrokerSession, event_type: EventTypeName, *, as_of: AsOf = None) -> None:
    """Show all versions of the [schema](reference/schemas.md) of an event type, newest first."""
    session.output.items(session.client.schemas.list(event_type, as_of=as_of), COLUMNS)


@app.command(epilog="Example: rioni schemas show order.created 1.0.0 > schema.json")
@connected
def show(
    session: BrokerSession,
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
def add(session: BrokerSession, event_type: EventTypeName, file: SchemaFile, *, kind: Kind = "json_schema") -> None:
    """Add a version of the schema, if the compatibility mode of the event type allows the change."""
    import msgspec

    from rioni.cli.publishing.checking import filters_that_lose

    schema = _schema(file, kind)
    before = session.client.event_types.get(event_type)
    lost = filters_that_lose(session.client, before, msgspec.structs.replace(before, schema=schema))
    # Nakadi's answer does not contain the version.
    found = session.client.schemas.add(event_type, schema) or session.client.schemas.get(event_type)
    for warning in lost:
        session.output.note(f"Warning: {as_sentence(warning)}")
    session.output.line(found, f"{event_type} has the schema as version {found.version}.")


@app.command(epilog="Example: rioni schemas find order.created schema.json")
@connected
def find(session: BrokerSession, event_type: EventTypeName, file: SchemaFile, *, kind: Kind = "json_schema") -> None:
    """Show which version has this schema."""
    found = session.client.schemas.find(event_type, _schema(file, kind))
    session.output.line(found, f"{event_type} has the schema as version {found.version}.")


@app.command(epilog="Example: rioni schemas check order.created schema.json")
@connected
def check(
    session: BrokerSession,
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


# --- Commands for data that all event types of a broker share: strategies, and Avro schemas of batches ---

registry_app = typer.Typer(name="registry", no_args_is_help=True, help="Strategies, and Avro schemas of batches.")

Batch = Annotated[Literal["batch.publishing", "batch.consumption"], typer.Argument(help="Kind of batch.")]


@registry_app.command("partition-strategies", epilog="Example: rioni registry partition-strategies")
@connected
def partition_strategies(session: BrokerSession) -> None:
    """Show the names of the [partition strategies](reference/event-types.md)."""
    _names(session, session.client.event_types.partition_strategies())


@registry_app.command("enrichment-strategies", epilog="Example: rioni registry enrichment-strategies")
@connected
def enrichment_strategies(session: BrokerSession) -> None:
    """Show the names of the enrichment strategies."""
    _names(session, session.client.event_types.enrichment_strategies())


@registry_app.command("avro-schemas", epilog="Example: rioni registry avro-schemas batch.publishing")
@connected
def avro_schemas(session: BrokerSession, batch: Batch) -> None:
    """Show all versions of the Avro schema of [batches](api/avro.md)."""
    session.output.items(session.client.schemas.avro_versions(batch), {"version": "version", "schema": "avro_schema"})


@registry_app.command("avro-schema", epilog="Example: rioni registry avro-schema batch.publishing 1 > batch.avsc")
@connected
def avro_schema(
    session: BrokerSession, batch: Batch, version: Annotated[str, typer.Argument(help="The version.")]
) -> None:
    """Show a version of the Avro schema of batches; without `--json` only the schema, in several lines."""
    found = session.client.schemas.avro(batch, version)
    session.output.line(found, json.dumps(found.avro_schema, indent=2))


def _names(session: BrokerSession, names: Sequence[str]) -> None:
    session.output.items([{"name": name} for name in names], {"name": "name"})


# --- The command that writes models for events from schemas ---

models_app = typer.Typer()


@models_app.command(epilog="Example: rioni types order.created order.shipped --output events.py")
@connected
def types(
    session: BrokerSession,
    event_types: Annotated[
        list[str], typer.Argument(help="Event types.", metavar="EVENT_TYPE...", autocompletion=completions.event_types)
    ],
    *,
    style: Annotated[Literal["msgspec", "dataclass"], typer.Option(help="Style of the classes.")] = "msgspec",
    formats: Annotated[
        bool, typer.Option(help="Whether texts with the format date-time, date or uuid get their own types.")
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
