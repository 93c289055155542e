"""Commands for the settings that administrators change while a broker runs."""

import contextlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.options import AsOf
from rioni.cli.connections.session import Session, connected
from rioni.cli.names import check_event_type
from rioni.cli.options import Yes
from rioni.cli.terminal.output import confirm
from rioni.domain.errors import Invalid
from rioni.domain.nearest import proposal


if TYPE_CHECKING:
    from rioni.client import Attribute, Blacklist

app = typer.Typer(name="settings", no_args_is_help=True, help="Administrators, blacklist and features of a broker.")


class BlacklistType(StrEnum):
    """What is blocked."""

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


@app.command(epilog="Example: rioni settings admins")
@connected
def admins(session: Session, *, as_of: AsOf = None) -> None:
    """Show who [administers, reads and writes](reference/authorization.md#broker-administrators) the broker itself."""
    found = session.client.settings.admins(as_of=as_of)
    lists = {"admins": found.admins, "readers": found.readers, "writers": found.writers}
    if session.output.json:
        session.output.item(found)
    else:
        session.output.item({name: [str(each) for each in attributes] for name, attributes in lists.items()})


@app.command("set-admins", epilog="Example: rioni settings set-admins --admin user:jane --admin service:deploy --yes")
@connected
def set_admins(
    session: Session,
    *,
    admin: Annotated[list[str], typer.Option(help=f"Who administers, {ATTRIBUTE}.")] = [],  # noqa: B006
    reader: Annotated[list[str], typer.Option(help=f"Who reads, {ATTRIBUTE}.")] = [],  # noqa: B006
    writer: Annotated[list[str], typer.Option(help=f"Who writes, {ATTRIBUTE}.")] = [],  # noqa: B006
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


@app.command(epilog="Example: rioni settings blacklist")
@connected
def blacklist(session: Session, *, as_of: AsOf = None) -> None:
    """Show the applications and event types that are [blocked](reference/settings-and-storages.md#blacklist)."""
    found = session.client.settings.blacklist(as_of=as_of)
    session.output.items(_blocked(found), {"type": "type", "name": "name"})


@app.command(epilog="Example: rioni settings block PRODUCER_APP shop")
@connected
def block(session: Session, kind: Kind, name: BlockedName) -> None:
    """Block an application or event type: it may not publish, or not be streamed."""
    from rioni.client import Forbidden

    # Who may block may not be one who may see the event type.
    with contextlib.suppress(Forbidden):
        if kind.is_of_event_types:
            check_event_type(session.client, name)
    session.client.settings.block(kind.value, name)
    session.output.line({"type": kind.value, "name": name}, f"{name} is blocked ({kind.value}).")


@app.command(epilog="Example: rioni settings unblock PRODUCER_APP shop")
@connected
def unblock(session: Session, kind: Kind, name: BlockedName) -> None:
    """Unblock an application or event type."""
    from rioni.client import Forbidden

    # Who may unblock may not be one who may see what is blocked.
    with contextlib.suppress(Forbidden):
        blocked = [each["name"] for each in _blocked(session.client.settings.blacklist()) if each["type"] == kind.value]
        if name not in blocked:
            raise Invalid(f"{name} is not blocked ({kind.value}){proposal(name, blocked)}")
    session.client.settings.unblock(kind.value, name)
    session.output.line({"type": kind.value, "name": name}, f"{name} is not blocked ({kind.value}).")


@app.command(epilog="Example: rioni settings rights --event-type order.created")
@connected
def rights(
    session: Session,
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


@app.command(epilog="Example: rioni settings features")
@connected
def features(session: Session, *, as_of: AsOf = None) -> None:
    """Show all [features](reference/settings-and-storages.md#features), and whether they are on."""
    found = session.client.settings.features(as_of=as_of)
    session.output.items(found, {"feature": "feature", "on": "enabled"})


@app.command(epilog="Example: rioni settings enable kpi_collection")
@connected
def enable(session: Session, feature: Feature) -> None:
    """Switch a feature on."""
    _switch(session, feature, enabled=True)


@app.command(epilog="Example: rioni settings disable kpi_collection")
@connected
def disable(session: Session, feature: Feature) -> None:
    """Switch a feature off."""
    _switch(session, feature, enabled=False)


def _switch(session: Session, feature: str, *, enabled: bool) -> None:
    session.client.settings.switch_feature(feature, enabled=enabled)
    session.output.line({"feature": feature, "enabled": enabled}, f"{feature} is {'on' if enabled else 'off'}.")


def _attributes(texts: list[str]) -> "list[Attribute]":
    from rioni.client import Attribute

    try:
        return [Attribute.parse(text) for text in texts]
    except ValueError as ex:
        raise typer.BadParameter(str(ex)) from ex


def _blocked(found: "Blacklist") -> list[dict[str, str]]:
    lists = {
        BlacklistType.PRODUCER_APP: found.producers.apps,
        BlacklistType.PRODUCER_ET: found.producers.event_types,
        BlacklistType.CONSUMER_APP: found.consumers.apps,
        BlacklistType.CONSUMER_ET: found.consumers.event_types,
    }
    return [{"type": kind.value, "name": name} for kind, names in lists.items() for name in names]
