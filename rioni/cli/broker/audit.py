"""Commands of `rioni audit` that ask a running broker, for what its users may see."""

from typing import Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import Session, connected
from rioni.cli.terminal.tables import actor_of
from rioni.cli.terminal.times import log_time


app = typer.Typer(name="audit")

ENTRIES_MAX = 1_000_000
"""Of a list; `--all` has no bound."""
Limit = Annotated[int, typer.Option(help="How many at most.", min=1, max=ENTRIES_MAX)]
ALL = "`--limit` and `--all` show them."
Everything = Annotated[bool, typer.Option("--all", help="All of them, whatever the limit.")]


def _time(text: str) -> str:
    return log_time(text)


@app.command("list", epilog="Example: rioni audit list --resource event-type:order.created --since 2026-01-01")
@connected
def list_changes(
    session: Session,
    *,
    resource: Annotated[
        str | None,
        typer.Option(
            help="What was changed, such as `event-type:order.created`.", autocompletion=completions.resources
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="`event-type`, or more exactly `event-type.created`.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what subjects of this name did.")] = None,
    realm: Annotated[str | None, typer.Option(help="Only what the actor of this realm did.")] = None,
    flow_id: Annotated[str | None, typer.Option(help="Only what this request did.")] = None,
    since: Annotated[
        str | None, typer.Option(help="First time, RFC 3339 or a day in UTC.", metavar="TIME", parser=_time)
    ] = None,
    until: Annotated[str | None, typer.Option(help="End, not included.", metavar="TIME", parser=_time)] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="In the order of the log.")] = False,
    states: Annotated[bool, typer.Option("--states", help="Also the states before and after, in JSON.")] = False,
    limit: Limit = 100,
    everything: Everything = False,
) -> None:
    """Ask a running broker who changed what, newest first.

    For administrators and readers of the broker, and those whom the setting `audit_readers` names:
    [the audit trail](reference/audit.md). On its host `rioni audit` reads the same from its data.
    """
    found = session.client.audit.entries(
        resource=resource,
        kind=kind,
        actor=actor,
        realm=realm,
        flow_id=flow_id,
        since=since,
        until=until,
        order="asc" if oldest_first else "desc",
        states=states,
        limit=None if everything else limit + 1,
    )
    _say_source(session)
    session.output.first(
        found,
        None if everything else limit,
        {
            "position": "position",
            "when": "recorded_at",
            "who": actor_of,
            "from": "address",
            "what": "kind",
            "resource": "resource",
            "changed": _changed,
        },
        ALL,
    )


@app.command(epilog="Example: rioni audit denials --limit 20")
@connected
def denials(session: Session, *, limit: Limit = 100, everything: Everything = False) -> None:
    """Ask a running broker for requests that it refused with 401 or 403, newest first."""
    _say_source(session)
    session.output.first(
        session.client.audit.denials(),
        None if everything else limit,
        {
            "last": "last_at",
            "times": "count",
            "status": "status",
            "method": "method",
            "path": "path",
            "who": actor_of,
            "from": "address",
        },
        ALL,
    )


def _say_source(session: Session) -> None:
    if not session.output.json:
        where = f"{session.connection.url} ({session.connection.origin})"
        session.output.note(f"From the broker at {where}; `rioni audit` reads the data on this host.")


def _changed(entry: Any) -> list[str]:
    """The paths of what was changed."""
    return [change["path"] for change in entry["changes"]]
