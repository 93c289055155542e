"""Commands that show the state of a broker, its archives and backups, and rebuilds of its read models."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import say
from rioni.cli.terminal.tables import Column, client_of
from rioni.domain.access.addresses import host_and_port
from rioni.domain.errors import NotFound


if TYPE_CHECKING:
    from rioni.client import Health


# --- Commands that show the state of a broker ---

app = typer.Typer(name="monitoring", no_args_is_help=True, help="The state of a broker.")


@app.command(epilog="Example: rioni monitoring health")
@connected
def health(session: BrokerSession) -> None:
    """Show whether a broker answers at all; exit code 2 if it does not."""
    session.client.monitoring.health()
    session.output.line({"url": session.client.url, "status": "ok"}, f"{session.client.url} answers.")


@app.command(epilog="Example: rioni monitoring live")
@connected
def live(session: BrokerSession) -> None:
    """Show whether the process [makes progress](reference/operations.md#liveness); exit code 1 if a check fails."""
    _checks(session, session.client.monitoring.live())


@app.command(epilog="Example: rioni monitoring ready")
@connected
def ready(session: BrokerSession) -> None:
    """Show whether a broker [can serve requests](reference/operations.md#readiness); exit code 1 if a check fails."""
    _checks(session, session.client.monitoring.ready())


@app.command(epilog="Example: rioni monitoring version")
@connected
def version(session: BrokerSession) -> None:
    """Show the version of a broker."""
    found = session.client.monitoring.version()
    session.output.line({"version": found}, found)


@app.command(epilog="Example: rioni monitoring nodes")
@connected
def nodes(session: BrokerSession) -> None:
    """Show the [nodes](reference/operations.md#nodes) of a broker and their worker processes.

    With `--json` each node is a line with its `workers`; otherwise each worker is a row.
    """
    found = session.client.monitoring.nodes()
    if session.output.json:
        session.output.items(found, {})
        return
    rows: list[Any] = [
        {
            "node": host_and_port(node.host, node.port),
            "version": node.version,
            "worker": f"{worker.number + 1} of {node.configured_workers}",
            "started": worker.started_at,
            "connections": worker.connections,
            "streams": worker.streams,
            "requests": worker.requests_per_second,
        }
        for node in found
        for worker in node.workers
    ]
    columns = ("node", "version", "worker", "started", "connections", "streams")
    session.output.items(rows, {**{each: each for each in columns}, "requests/s": "requests"})


@app.command(epilog="Example: rioni monitoring metrics --name rioni_http_requests_total")
@connected
def metrics(
    session: BrokerSession,
    *,
    name: Annotated[str | None, typer.Option(help="Only those whose names begin with this.", metavar="PREFIX")] = None,
) -> None:
    """Show the [metrics](operating/monitoring.md) of the node, in Prometheus' text format.

    With `--json` each metric is a line with its `kind`, its `name` with the labels, and its values.
    """
    if session.output.json:
        found = session.client.monitoring.metrics()
        kinds = {"gauge": found.gauges, "counter": found.counters, "histogram": found.histograms}
        items = [
            {"kind": kind, "name": each, **values}
            for kind, metrics in kinds.items()
            for each, values in metrics.items()
            if each.startswith(name or "")
        ]
        session.output.items(items, {})
        return
    lines = session.client.monitoring.metrics_text().splitlines()
    shown = [each for each in lines if each.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(name or "")]
    for line in shown:
        say(line)
    if not shown:
        session.output.note("None found.")


@app.command(
    epilog="Example: rioni monitoring history --name published_events --step 60\n\n"
    "Example: rioni monitoring history --subscription 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --json"
)
@connected
def history(
    session: BrokerSession,
    *,
    name: Annotated[list[str], typer.Option(help="Only series of this name; may be repeated.")] = [],  # noqa: B006 - never changed
    event_type: Annotated[
        list[str],
        typer.Option(help="Only series of this event type; may be repeated.", autocompletion=completions.event_types),
    ] = [],  # noqa: B006 - never changed
    subscription: Annotated[
        list[str],
        typer.Option(
            help="Only series of this subscription, by id or OWNING_APPLICATION/CONSUMER_GROUP; may be repeated.",
            autocompletion=completions.subscriptions,
        ),
    ] = [],  # noqa: B006 - never changed
    total: Annotated[
        bool | None,
        typer.Option("--total/--parts", help="Only sums over all, or only their parts.", show_default=False),
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only values from this RFC 3339 time on.", metavar="TIME")] = None,
    step: Annotated[int | None, typer.Option(help="Seconds of a value; 10 by default.", min=10, max=3600)] = None,
    largest: Annotated[bool, typer.Option("--largest", help="Begin with the largest last values.")] = False,
    limit: Annotated[int | None, typer.Option(help="How many series are shown.", min=1, max=1000)] = None,
) -> None:
    """Show [metrics of the last hour](reference/operations.md#metrics-history).

    Of each series it is the last value and the range. With `--json` each series is a line with all `times` and
    `values`.
    """
    found = session.client.monitoring.history(
        names=name,
        event_types=event_type,
        subscriptions=subscription,
        total=total,
        since=since,
        step=step,
        order="largest" if largest else None,
        limit=limit,
    )
    rows: list[Any] = []
    for each in found.series:
        known = [value for value in each.values if value is not None]
        label = next(iter(each.labels.values()), "")
        if session.output.json:
            rows.append({"name": each.name, "labels": each.labels, "times": found.times, "values": each.values})
        elif known:
            rows.append({"name": each.name, "of": label, "last": known[-1], "least": min(known), "most": max(known)})
    session.output.items(rows, {"name": "name", "of": "of", "last": "last", "least": "least", "most": "most"})
    session.output.note_left_out(len(found.series), found.matched, "series")


@app.command(epilog="Example: rioni monitoring openapi > openapi.json")
@connected
def openapi(session: BrokerSession) -> None:
    """Show the description of the API as an OpenAPI document."""
    found = session.client.monitoring.openapi()
    session.output.line(found, json.dumps(found, indent=2))


@app.command(epilog="Example: rioni monitoring docs > api.html")
@connected
def docs(session: BrokerSession) -> None:
    """Show the description of the API as a page in HTML."""
    found = session.client.monitoring.docs()
    session.output.line({"page": found}, found.rstrip("\n"))


def _checks(session: BrokerSession, found: "Health") -> None:
    if session.output.json:
        session.output.item(found)
    else:
        rows: list[Any] = [
            {
                "check": name,
                "status": check.status,
                "detail": "; ".join(filter(None, [*check.warnings, check.reason, check.detail])),
            }
            for name, check in found.checks.items()
        ]
        session.output.items(rows, {"check": "check", "status": "status", "detail": "detail"})
    if not found.ok:
        raise typer.Exit(FOUND)


# --- Commands that show archives and backups ---

jobs_app = typer.Typer(name="jobs", no_args_is_help=True, help="How far archives and backups are.")

JOB_COLUMNS: dict[str, Column] = {
    "kind": "kind",
    "to": "name",
    "state": "state",
    "phase": "phase",
    "done": "done",
    "of": "total",
    "started": "started_at",
    "updated": "updated_at",
    "client": client_of,
    "detail": "detail",
}


@jobs_app.command("list", epilog="Example: rioni jobs list --kind backup")
@connected
def list_jobs(
    session: BrokerSession,
    kind: Annotated[Literal["archive", "backup"] | None, typer.Option(help="Only jobs of this kind.")] = None,
) -> None:
    """Show the last 100 [archives and backups](reference/jobs.md) of each kind, those first that changed last."""
    session.output.items(session.client.jobs.list(kind), JOB_COLUMNS)


# --- Commands that show rebuilds of the read models ---

rebuilds_app = typer.Typer(name="rebuilds", no_args_is_help=True, help="How far rebuilds of the read models are.")

REBUILD_COLUMNS = {
    "id": "id",
    "state": "state",
    "phase": "phase",
    "done": "done",
    "of": "total",
    "started": "started_at",
    "updated": "updated_at",
    "into": "into",
    "detail": "detail",
}


@rebuilds_app.command("list", epilog="Example: rioni rebuilds list")
@connected
def list_rebuilds(session: BrokerSession) -> None:
    """Show the last 100 [rebuilds](reference/rebuilds.md), newest first."""
    session.output.items(session.client.rebuilds.list(), REBUILD_COLUMNS)


@rebuilds_app.command(epilog="Example: rioni rebuilds show")
@connected
def show(
    session: BrokerSession,
    rebuild: Annotated[str | None, typer.Argument(help="Id of the rebuild; by default the newest.")] = None,
) -> None:
    """Show a rebuild."""
    client = session.client.rebuilds
    if rebuild is None:
        found = client.list()
        if not found:
            raise NotFound(f"There was no rebuild on {session.client.url}.")
        rebuild = found[0].id
    session.output.item(client.get(rebuild))
