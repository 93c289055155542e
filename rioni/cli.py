"""The command line: parses options, runs the operation, and reports errors in one line.

Exit codes: 0 if all is well, 1 where findings or differences were asked for and found, 2 if the command could not do
its work. The modules that do the work are imported by the commands, so that each one starts quickly.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

import typer

from rioni import __version__
from rioni.cli_output import console_on, opened, plain_table, progress_bars, write_json_lines, write_table
from rioni.config.loading import TOKEN_VARIABLE, load
from rioni.config.settings import SETTINGS, Config
from rioni.domain.errors import RioniError


if TYPE_CHECKING:
    from rioni.tools.load_report import Report


FOUND = 1
FAILED = 2
DEFAULT_URL = "http://localhost:8080"

app = typer.Typer(name="rioni", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
bench = typer.Typer(no_args_is_help=True, help="Measure a broker: any server of the API, at any base URL.")
config = typer.Typer(no_args_is_help=True, help="Look at the settings.")
cluster = typer.Typer(
    no_args_is_help=True, help="Real Kafka, ZooKeeper and PostgreSQL on this machine, to try and to develop."
)
dead_letters = typer.Typer(no_args_is_help=True, help="Events that the consumers of a subscription never commit.")
app.add_typer(bench, name="bench")
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(config, name="config")
app.add_typer(cluster, name="cluster")

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with settings.", metavar="FILE")]
Data = Annotated[Path | None, typer.Option(help=SETTINGS["data"].description)]
Port = Annotated[int | None, typer.Option(help=SETTINGS["port"].description)]
Url = Annotated[str, typer.Option(help="Base URL of the API.")]
Token = Annotated[str | None, typer.Option(envvar=TOKEN_VARIABLE, help="Bearer token, where the broker asks for one.")]
CaCertificate = Annotated[
    Path | None,
    typer.Option(
        help="PEM file with the authorities to trust, for https; by default those of the system.", metavar="FILE"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as one line of JSON.")]
EventType = Annotated[str | None, typer.Option(help="Made if missing. [default: rioni-bench.<category>]")]
Connections = Annotated[int, typer.Option(min=1, max=1_000, help="Connections, each with one request at a time.")]
Seconds = Annotated[float, typer.Option(min=0.1, max=3_600, help="How long to measure.")]


class AuditFormat(StrEnum):
    """How the audit trail is written."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"


class Category(StrEnum):
    """Categories of event types."""

    BUSINESS = "business"
    DATA = "data"
    UNDEFINED = "undefined"


class ReadFrom(StrEnum):
    """Where a new subscription begins."""

    BEGIN = "begin"
    END = "end"


def main() -> None:
    """Run the command that `sys.argv` names, and exit."""
    try:
        app(prog_name="rioni")
    except RioniError as ex:
        typer.echo("\n".join([f"Error: {ex}", *getattr(ex, "__notes__", ())]), err=True)
        sys.exit(FAILED)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        typer.echo(f"rioni {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Rioni, an event broker that serves the Nakadi API."""
    del version  # its callback has seen to it


@app.command(epilog="Example: rioni serve --port 8081 --data /srv/rioni --workers 4")
def serve(
    *,
    host: Annotated[str | None, typer.Option(help=SETTINGS["host"].description)] = None,
    port: Port = None,
    data: Data = None,
    workers: Annotated[int | None, typer.Option(help=SETTINGS["workers"].description)] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help=SETTINGS["tls_certificate"].description)] = None,
    tls_key: Annotated[Path | None, typer.Option(help=SETTINGS["tls_key"].description)] = None,
    allow_unauthenticated: Annotated[
        bool, typer.Option("--allow-unauthenticated", help=SETTINGS["allow_unauthenticated"].description)
    ] = False,
    config_file: ConfigFile = None,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM."""
    settings = _settings(
        config_file,
        host=host,
        port=port,
        data=data,
        workers=workers,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        allow_unauthenticated=allow_unauthenticated or None,
    )
    from rioni.server import serve as run

    run(settings)


@app.command(epilog="Example: rioni demo --flights 20000 --exit")
def demo(
    *,
    port: Port = None,
    data: Data = None,
    flights: Annotated[int | None, typer.Option(min=1, help="Publish only the first flights of the year.")] = None,
    exit_after: Annotated[bool, typer.Option("--exit", help="End after the report instead of serving on.")] = False,
    config_file: ConfigFile = None,
) -> None:
    """Publish, consume, audit and rebuild a year of real flights, checking every promise on the way."""
    settings = _settings(config_file, data=data, port=port)
    from rioni.tools.demo import run

    run(settings, exit_after=exit_after, flights=flights)


@app.command(epilog="Example: rioni rebuild --dry-run")
def rebuild(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare; exit code 1 on a difference.")] = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Rebuild all read models from the internal log with Spark, without stopping the broker."""
    settings = _settings(config_file, data=data)
    from rioni.bootstrap import admin_operations

    with progress_bars() as progress:
        report = admin_operations.rebuild(settings, dry_run=dry_run, progress=progress)
    for table, key, kind in report.differences:
        typer.echo(f"{table}, {', '.join(map(str, key))}: {kind}")
    found = f"{len(report.differences)} differences" + ("" if dry_run else ", the new read models are live")
    typer.echo(f"{report.entries:,} log entries folded in {report.seconds:.1f} s: {found}")
    if report.differences and dry_run:
        raise typer.Exit(FOUND)


@app.command(epilog="Example: rioni migrate --data /srv/rioni --to cluster.toml")
def migrate(
    *,
    to: Annotated[
        Path, typer.Option("--to", help="TOML file with the settings of the cluster's nodes.", metavar="FILE")
    ],
    data: Data = None,
) -> None:
    """Move log, events and cursors of a broker that is stopped to a cluster; interrupted, do it again."""
    target = _settings(to)
    from rioni.bootstrap import migration

    with progress_bars() as progress:
        report = migration.migrate(data or Config().data, target, progress)
    typer.echo(
        f"Moved {report.head.position:,} entries of the log, {report.events:,} events and {report.subscriptions:,} "
        f"subscriptions, and found them as they were. The log that was moved ends with {report.head.hash.hex()}."
    )


@app.command(epilog="Example: rioni verify --data /srv/rioni")
def verify(*, data: Data = None, config_file: ConfigFile = None) -> None:
    """Check the internal log (hash chain, positions, topics) and the stored events; exit code 1 on a finding."""
    settings = _settings(config_file, data=data)
    from rioni.bootstrap import admin_operations

    findings = 0
    for finding in admin_operations.verify(settings):
        typer.echo(finding)
        findings += 1
    typer.echo(f"{findings} findings" if findings else "Nothing is damaged or missing.")
    if findings:
        raise typer.Exit(FOUND)


@app.command("accept-loss", epilog="Example: rioni accept-loss --data /srv/rioni --reason 'disk of node 3 died'")
def accept_loss(
    *,
    reason: Annotated[str, typer.Option(help="Recorded in the internal log, with what was found.")],
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Accept inconsistent stores, and lose what is missing; the broker has to be stopped."""
    settings = _settings(config_file, data=data)
    from rioni.bootstrap import acceptance

    findings = acceptance.accept_loss(settings, reason)
    for finding in findings:
        typer.echo(finding)
    typer.echo("Accepted; the decision is in the internal log." if findings else "Nothing is missing.")


@app.command(epilog="Example: rioni audit --since 2026-01-01 --actor jane --format jsonl --output audit.jsonl")
def audit(
    *,
    since: Annotated[str | None, typer.Option(help="First time, RFC 3339 or a day in UTC.", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option(help="End, not included.", metavar="TIME")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this subject did.")] = None,
    resource: Annotated[str | None, typer.Option(help="Name of what was changed, or `kind:name`.")] = None,
    form: Annotated[AuditFormat, typer.Option("--format", help="Parquet is written by Spark.")] = AuditFormat.TABLE,
    output: Annotated[Path | None, typer.Option(help="File to write; for Parquet a folder.")] = None,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Show or export who changed what, when, from where: every administrative change ever made."""
    wanted = {"since": _time(since), "until": _time(until), "actor": actor, "resource": resource}
    if form is AuditFormat.PARQUET and output is None:
        raise typer.BadParameter("Parquet needs a folder to write to: --output FOLDER", param_hint="--format")
    settings = _settings(config_file, data=data)
    from rioni.bootstrap import admin_operations

    if form is AuditFormat.PARQUET and output is not None:
        with progress_bars() as progress:
            report = admin_operations.export_audit(settings, output, **wanted, progress=progress)
        position, digest = report.head
        typer.echo(f"{report.rows:,} entries written to {output}; the log ends at {position} with {digest.hex()}")
        return
    write = write_table if form is AuditFormat.TABLE else write_json_lines
    with opened(output) as file:
        write(admin_operations.audit(settings, **wanted), file)


@bench.command("publish", epilog="Example: rioni bench publish --connections 8 --batch 100 --size 200 --seconds 10")
def bench_publish(
    *,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca_certificate: CaCertificate = None,
    event_type: EventType = None,
    category: Annotated[Category, typer.Option(help="Category of the event type.")] = Category.BUSINESS,
    connections: Connections = 8,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Events in one request.")] = 100,
    size: Annotated[
        int, typer.Option(min=0, max=900_000, help="Bytes of one event, at least what metadata needs.")
    ] = 200,
    seconds: Seconds = 10,
    requests: Annotated[int | None, typer.Option(min=1, help="End after so many requests.")] = None,
    json: Json = False,
) -> None:
    """Publish valid events as fast as they are acknowledged; exit code 1 if some were not."""
    from rioni.tools import bench as load

    plan = load.Publish(
        url=url,
        token=token,
        ca_certificate=ca_certificate,
        event_type=event_type or f"rioni-bench.{category}",
        category=category.value,
        connections=connections,
        batch=batch,
        size=size,
        seconds=seconds,
        requests=requests,
    )
    _report(load.publish(plan), json=json)


@bench.command("consume", epilog="Example: rioni bench consume --connections 2 --read-from begin --events 1000000")
def bench_consume(
    *,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca_certificate: CaCertificate = None,
    event_type: Annotated[str, typer.Option(help="An existing event type.")] = "rioni-bench.business",
    connections: Annotated[int, typer.Option(min=1, max=1_000, help="Streams of the subscription.")] = 1,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Events in one batch at most.")] = 500,
    window: Annotated[int, typer.Option(min=1, help="Events of a stream that may be uncommitted.")] = 50_000,
    read_from: Annotated[ReadFrom, typer.Option(help="Where the new subscription begins.")] = ReadFrom.BEGIN,
    seconds: Seconds = 10,
    events: Annotated[int | None, typer.Option(min=1, help="End after so many events.")] = None,
    json: Json = False,
) -> None:
    """Consume through a new subscription, committing all the time; exit code 1 if a request failed."""
    from rioni.tools import bench as load

    plan = load.Consume(
        url=url,
        token=token,
        ca_certificate=ca_certificate,
        event_type=event_type,
        connections=connections,
        batch=batch,
        window=window,
        read_from=read_from.value,
        seconds=seconds,
        events=events,
    )
    _report(load.consume(plan), json=json)


SubscriptionId = Annotated[str, typer.Argument(help="Id of the subscription.")]
FromEventType = Annotated[str | None, typer.Option("--event-type", help="Only events of this event type.")]
FromPartition = Annotated[str | None, typer.Option("--partition", help="Only events of this partition.")]
FromOffset = Annotated[str | None, typer.Option(help="Only events from this offset on.")]
ToOffset = Annotated[str | None, typer.Option(help="Only events up to this offset.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]


@dead_letters.command("list", epilog="Example: rioni dead-letters list 038fc871-1d2c-4e2e-aa29-1579e8f2e71f")
def dead_letters_list(
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca_certificate: CaCertificate = None,
) -> None:
    """Show dead letters, oldest first, one line of JSON each."""
    import orjson

    wanted = _given(event_type=event_type, partition=partition, from_offset=from_offset, to_offset=to_offset)
    query = urlencode(wanted | {"limit": limit})
    path = f"/subscriptions/{quote(subscription, safe='')}/dead-letters?{query}"
    answer = _asked(url, token, ca_certificate)("GET", path)
    for item in answer["items"]:
        typer.echo(orjson.dumps(item))


@dead_letters.command(
    "redrive", epilog="Example: rioni dead-letters redrive 038fc871-1d2c-4e2e-aa29-1579e8f2e71f --partition 0"
)
def dead_letters_redrive(
    subscription: SubscriptionId,
    *,
    event_type: FromEventType = None,
    partition: FromPartition = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    limit: Limit = 1_000,
    force: Annotated[bool, typer.Option("--force", help="Also those that were published again before.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca_certificate: CaCertificate = None,
) -> None:
    """Publish dead letters again, for their subscription alone."""
    wanted = _given(event_type=event_type, partition=partition, from_offset=from_offset, to_offset=to_offset)
    body = wanted | {"limit": limit, "force": force}
    path = f"/subscriptions/{quote(subscription, safe='')}/dead-letters/redrive"
    answer = _asked(url, token, ca_certificate)("POST", path, body)
    typer.echo(
        f"{answer['redriven']} redriven, {answer['already_redriven']} already redriven, "
        f"{answer['without_event_type']} without an event type"
    )


def _given(**options: str | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _asked(url: str, token: str | None, ca_certificate: Path | None) -> Callable[..., Any]:
    """What asks a broker: `ask(method, path, body)` returns the JSON of the answer."""
    from rioni.tools.api_client import call
    from rioni.tools.load_client import Server

    server = Server(url, token, ca_certificate)
    return lambda *request: call(server, *request)[1]


@config.command("show", epilog="Example: RIONI_PORT=8081 rioni config show")
def config_show(*, config_file: ConfigFile = None) -> None:
    """Show every setting, its value, and where the value comes from."""
    loaded = load(file=config_file)
    table = plain_table("setting", "value", "source")
    for setting in SETTINGS.values():
        value = setting.show(getattr(loaded.config, setting.name))
        table.add_row(setting.name, value, loaded.sources[setting.name])
    console_on(sys.stdout).print(table)


@cluster.command("up", epilog="Example: rioni cluster up --brokers 3")
def cluster_up(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers of Kafka; of three each topic has a copy.")] = 1,
    zookeepers: Annotated[int, typer.Option(min=1, max=5, help="Servers of ZooKeeper; of three one may die.")] = 1,
) -> None:
    """Start what several nodes share until Ctrl-C or SIGTERM, and print how they find it; nothing is kept."""
    from rioni.tools.dev_cluster.cluster import running_cluster, until_told_to_stop

    with (
        until_told_to_stop() as wait,
        running_cluster(
            brokers=brokers, zookeepers=zookeepers, progress=lambda text: typer.echo(f"# {text}", err=True)
        ) as running,
    ):
        for variable, value in running.environment.items():
            typer.echo(f"export {variable}='{value}'")
        typer.echo("# Ctrl-C stops everything.", err=True)
        wait()


def _settings(file: Path | None, **flags: object) -> Config:
    from rioni import logging_setup

    settings = load(flags, file=file).config
    logging_setup.configure(settings)
    return settings


def _time(text: str | None) -> str | None:
    """A time in the form of the log, which compares as text."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as ex:
        raise typer.BadParameter(f"{text} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z") from ex
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _report(report: "Report", *, json: bool) -> None:
    if json:
        typer.echo(report.json())
    else:
        report.show(console_on(sys.stdout))
    if report.failed:
        raise typer.Exit(FOUND)
