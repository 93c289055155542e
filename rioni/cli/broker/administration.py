"""Commands for what administrators change while a broker runs: settings and storages."""

import contextlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import AsOf, check_event_type
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.options import Yes
from rioni.cli.terminal.output import confirm
from rioni.domain.errors import Invalid
from rioni.domain.texts import proposal


if TYPE_CHECKING:
    from rioni.client import Attribute


# --- Commands for the settings that administrators change while a broker runs ---

settings_app = typer.Typer(
    name="settings", no_args_is_help=True, help="Administrators, blacklist and features of a broker."
)


class BlacklistType(StrEnum):
    """The kind of a block: producers or consumers, by application or by event type."""

    PRODUCER_APP = "PRODUCER_APP"
    PRODUCER_ET = "PRODUCER_ET"
    CONSUMER_APP = "CONSUMER_APP"
    CONSUMER_ET = "CONSUMER_ET"

    @property
    def is_of_event_types(self) -> bool:
        """Whether event types are blocked, and not applications."""
        return self in (BlacklistType.PRODUCER_ET, BlacklistType.CONSUMER_ET)


Kind = Annotated[
    BlacklistType,
    typer.Argument(help="An application or event type as producer or consumer.", case_sensitive=False),
]
BlockedName = Annotated[str, typer.Argument(help="Name of the application or event type.")]
Feature = Annotated[str, typer.Argument(help="Name of the feature.", autocompletion=completions.features)]
ATTRIBUTE = "such as `user:jane`; may be repeated"


@settings_app.command(epilog="Example: rioni settings admins")
@connected
def admins(session: BrokerSession, *, as_of: AsOf = None) -> None:
    """Show who [administers, reads and writes](reference/authorization.md#broker-administrators) the broker itself."""
    found = session.client.settings.admins(as_of=as_of)
    lists = {"admins": found.admins, "readers": found.readers, "writers": found.writers}
    if session.output.json:
        session.output.item(found)
    else:
        session.output.item({name: [str(each) for each in attributes] for name, attributes in lists.items()})


@settings_app.command(
    "set-admins", epilog="Example: rioni settings set-admins --admin user:jane --admin service:deploy --yes"
)
@connected
def set_admins(
    session: BrokerSession,
    *,
    admin: Annotated[list[str], typer.Option(help=f"Administrator, {ATTRIBUTE}.")] = [],  # noqa: B006
    reader: Annotated[list[str], typer.Option(help=f"Reader, {ATTRIBUTE}.")] = [],  # noqa: B006
    writer: Annotated[list[str], typer.Option(help=f"Writer, {ATTRIBUTE}.")] = [],  # noqa: B006
    yes: Yes = False,
) -> None:
    """Replace the lists that are given; the others stay, and so does the administrator of the configuration."""
    from rioni.client import Admins

    settings = session.client.settings
    now = settings.admins()
    wanted = Admins(
        admins=_attributes(admin) or now.admins,
        readers=_attributes(reader) or now.readers,
        writers=_attributes(writer) or now.writers,
    )
    confirm("Replace who administers the broker?", yes=yes)
    found = settings.set_admins(wanted)
    session.output.line(found, "The administrators are as wanted.")


@settings_app.command(epilog="Example: rioni settings blacklist")
@connected
def blacklist(session: BrokerSession, *, as_of: AsOf = None) -> None:
    """Show the applications and event types that are [blocked](reference/settings-and-storages.md#blacklist)."""
    found = session.client.settings.blacklist(as_of=as_of).entries()
    rows = [{"type": kind, "name": name} for kind, name in found]
    session.output.items(rows, {"type": "type", "name": "name"})


@settings_app.command(epilog="Example: rioni settings block PRODUCER_APP shop")
@connected
def block(session: BrokerSession, kind: Kind, name: BlockedName) -> None:
    """Block an application or event type: it may not publish, or not be streamed."""
    from rioni.client import Forbidden

    # A user who may block need not be one who may see the event type.
    with contextlib.suppress(Forbidden):
        if kind.is_of_event_types:
            check_event_type(session.client, name)
    session.client.settings.block(kind.value, name)
    session.output.line({"type": kind.value, "name": name}, f"{name} is blocked ({kind.value}).")


@settings_app.command(epilog="Example: rioni settings unblock PRODUCER_APP shop")
@connected
def unblock(session: BrokerSession, kind: Kind, name: BlockedName) -> None:
    """Unblock an application or event type."""
    from rioni.client import Forbidden

    # A user who may unblock need not be one who may see what is blocked.
    with contextlib.suppress(Forbidden):
        blocked = [each for of_kind, each in session.client.settings.blacklist().entries() if of_kind == kind]
        if name not in blocked:
            raise Invalid(f"{name} is not blocked ({kind.value}){proposal(name, blocked)}")
    session.client.settings.unblock(kind.value, name)
    session.output.line({"type": kind.value, "name": name}, f"{name} is not blocked ({kind.value}).")


@settings_app.command(epilog="Example: rioni settings rights --event-type order.created")
@connected
def rights(
    session: BrokerSession,
    *,
    event_type: Annotated[
        str | None, typer.Option(help="Also the rights to this event type.", autocompletion=completions.event_types)
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option(
            help="Also the rights to this subscription, by id or OWNING_APPLICATION/CONSUMER_GROUP.",
            autocompletion=completions.subscriptions,
        ),
    ] = None,
) -> None:
    """Show what you [may do](reference/authorization.md#own-rights)."""
    session.output.item(session.client.settings.rights(event_type=event_type, subscription_id=subscription))


@settings_app.command(epilog="Example: rioni settings features")
@connected
def features(session: BrokerSession, *, as_of: AsOf = None) -> None:
    """Show all [features](reference/settings-and-storages.md#features), and whether they are on."""
    found = session.client.settings.features(as_of=as_of)
    session.output.items(found, {"feature": "feature", "on": "enabled"})


@settings_app.command(epilog="Example: rioni settings enable kpi_collection")
@connected
def enable(session: BrokerSession, feature: Feature) -> None:
    """Switch a feature on."""
    _switch(session, feature, enabled=True)


@settings_app.command(epilog="Example: rioni settings disable kpi_collection")
@connected
def disable(session: BrokerSession, feature: Feature) -> None:
    """Switch a feature off."""
    _switch(session, feature, enabled=False)


def _switch(session: BrokerSession, feature: str, *, enabled: bool) -> None:
    session.client.settings.switch_feature(feature, enabled=enabled)
    session.output.line({"feature": feature, "enabled": enabled}, f"{feature} is {'on' if enabled else 'off'}.")


def _attributes(texts: list[str]) -> "list[Attribute]":
    from rioni.client import Attribute

    try:
        return [Attribute.parse(text) for text in texts]
    except ValueError as ex:
        raise typer.BadParameter(str(ex)) from ex


# --- Commands for the storages of a broker ---

storages_app = typer.Typer(name="storages", no_args_is_help=True, help="Storages of events.")

StorageId = Annotated[str, typer.Argument(help="Id of the storage.", autocompletion=completions.storages)]


@storages_app.command("list", epilog="Example: rioni storages list")
@connected
def list_storages(session: BrokerSession, *, as_of: AsOf = None) -> None:
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


@storages_app.command(epilog="Example: rioni storages show default")
@connected
def show(session: BrokerSession, storage: StorageId, *, as_of: AsOf = None) -> None:
    """Show a storage with its configuration."""
    session.output.item(session.client.storages.get(storage, as_of=as_of))


@storages_app.command(
    epilog="Example: rioni storages create archive --type kafka --bootstrap-servers kafka1:9092,kafka2:9092"
)
@connected
def create(
    session: BrokerSession,
    storage: Annotated[str, typer.Argument(help="Id of the new storage.")],
    *,
    kind: Annotated[Literal["embedded", "kafka"], typer.Option("--type", help="Type of the storage.")] = "embedded",
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka: addresses, with commas between them.")] = None,
    topic_prefix: Annotated[str | None, typer.Option(help="Kafka: what names of topics begin with.")] = None,
    replication_factor: Annotated[int | None, typer.Option(help="Kafka: copies of each partition.", min=1)] = None,
    min_insync_replicas: Annotated[int | None, typer.Option(help="Kafka: copies that have to confirm.", min=1)] = None,
) -> None:
    """Add a storage; event types begin in it when it is the default, or by a timeline."""
    from rioni.wire.administration import Storage

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


@storages_app.command(epilog="Example: rioni storages delete archive --yes")
@connected
def delete(session: BrokerSession, storage: StorageId, *, yes: Yes = False) -> None:
    """Remove a storage that no timeline uses."""
    confirm(f"Remove the storage {storage}?", yes=yes)
    session.client.storages.delete(storage)
    session.output.line({"id": storage}, f"The storage {storage} is removed.")


@storages_app.command("set-default", epilog="Example: rioni storages set-default archive")
@connected
def set_default(session: BrokerSession, storage: StorageId) -> None:
    """Let new event types begin in this storage."""
    found = session.client.storages.set_default(storage)
    session.output.line(found, f"New event types begin in {found.id}.")
