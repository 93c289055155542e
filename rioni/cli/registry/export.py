"""Commands for what all event types of a broker share: strategies, and Avro schemas of batches."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from rioni.cli.connections.session import Session, connected


app = typer.Typer(name="registry", no_args_is_help=True, help="Strategies, and Avro schemas of batches.")

Batch = Annotated[Literal["batch.publishing", "batch.consumption"], typer.Argument(help="Which batches.")]


@app.command("partition-strategies", epilog="Example: rioni registry partition-strategies")
@connected
def partition_strategies(session: Session) -> None:
    """Show the names of the [partition strategies](reference/event-types.md)."""
    _names(session, session.client.event_types.partition_strategies())


@app.command("enrichment-strategies", epilog="Example: rioni registry enrichment-strategies")
@connected
def enrichment_strategies(session: Session) -> None:
    """Show the names of the enrichment strategies."""
    _names(session, session.client.event_types.enrichment_strategies())


@app.command("avro-schemas", epilog="Example: rioni registry avro-schemas batch.publishing")
@connected
def avro_schemas(session: Session, batch: Batch) -> None:
    """Show all versions of the Avro schema of [batches](api/avro.md)."""
    session.output.items(session.client.schemas.avro_versions(batch), {"version": "version", "schema": "avro_schema"})


@app.command("avro-schema", epilog="Example: rioni registry avro-schema batch.publishing 1 > batch.avsc")
@connected
def avro_schema(session: Session, batch: Batch, version: Annotated[str, typer.Argument(help="The version.")]) -> None:
    """Show a version of the Avro schema of batches; without `--json` only the schema, in several lines."""
    found = session.client.schemas.avro(batch, version)
    session.output.line(found, json.dumps(found.avro_schema, indent=2))


def _names(session: Session, names: Sequence[str]) -> None:
    session.output.items([{"name": name} for name in names], {"name": "name"})
