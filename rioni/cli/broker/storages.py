"""Commands for the storages of a broker."""

from typing import Annotated, Literal

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import AsOf
from rioni.cli.connections.session import Session, connected
from rioni.cli.options import Yes
from rioni.cli.terminal.output import confirm
from rioni.domain.errors import Invalid


app = typer.Typer(name="storages", no_args_is_help=True, help="Where events are kept.")

StorageId = Annotated[str, typer.Argument(help="Id of the storage.", autocompletion=completions.storages)]


@app.command("list", epilog="Example: rioni storages list")
@connected
def list_storages(session: Session, *, as_of: AsOf = None) -> None:
    """Show all [storages](reference/settings-and-storages.md#storages)."""
    session.output.items(
        session.client.storages.list(as_of=as_of),
        {
            "id": "id",
            "type": "storage_type",
            "default": "default",
            "brokers": "kafka_configuration.bootstrap_servers",
        },
    )


@app.command(epilog="Example: rioni storages show default")
@connected
def show(session: Session, storage: StorageId, *, as_of: AsOf = None) -> None:
    """Show a storage with its configuration."""
    session.output.item(session.client.storages.get(storage, as_of=as_of))


@app.command(epilog="Example: rioni storages create archive --type kafka --bootstrap-servers kafka1:9092,kafka2:9092")
@connected
def create(
    session: Session,
    storage: Annotated[str, typer.Argument(help="Id of the new storage.")],
    *,
    kind: Annotated[Literal["embedded", "kafka"], typer.Option("--type", help="Of the storage.")] = "embedded",
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka: addresses, with commas between them.")] = None,
    topic_prefix: Annotated[str | None, typer.Option(help="Kafka: what names of topics begin with.")] = None,
    replication_factor: Annotated[int | None, typer.Option(help="Kafka: copies of each partition.", min=1)] = None,
    min_insync_replicas: Annotated[int | None, typer.Option(help="Kafka: copies that have to confirm.", min=1)] = None,
) -> None:
    """Add a storage; event types begin in it when it is the default, or by a timeline."""
    from rioni.client.models.administration import Storage

    given = {
        "bootstrap_servers": bootstrap_servers,
        "topic_prefix": topic_prefix,
        "replication_factor": replication_factor,
        "min_insync_replicas": min_insync_replicas,
    }
    configuration = {name: value for name, value in given.items() if value is not None}
    if configuration and kind != "kafka":
        raise Invalid(f"A storage of the type {kind} has no {min(configuration)}; say --type kafka.")
    wanted = Storage(id=storage, storage_type=kind, kafka_configuration=configuration or None)
    created = session.client.storages.create(wanted)
    session.output.line(created, f"The storage {created.id} is added.")


@app.command(epilog="Example: rioni storages delete archive --yes")
@connected
def delete(session: Session, storage: StorageId, *, yes: Yes = False) -> None:
    """Remove a storage that no timeline uses."""
    confirm(f"Remove the storage {storage}?", yes=yes)
    session.client.storages.delete(storage)
    session.output.line({"id": storage}, f"The storage {storage} is removed.")


@app.command("set-default", epilog="Example: rioni storages set-default archive")
@connected
def set_default(session: Session, storage: StorageId) -> None:
    """Let new event types begin in this storage."""
    found = session.client.storages.set_default(storage)
    session.output.line(found, f"New event types begin in {found.id}.")
