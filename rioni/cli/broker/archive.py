"""The command that keeps events in a data lake."""

import threading
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.host.options import ConfigFile, load_settings
from rioni.cli.options import SECONDS_MAX, Json
from rioni.cli.terminal.ending import FOUND, when_asked_to_end
from rioni.cli.terminal.output import Output, say
from rioni.domain.access.addresses import host_and_port
from rioni.files.extras import requirement


if TYPE_CHECKING:
    from rioni.client import Client
    from rioni.domain.system.reports import JobReport
    from rioni.lake.event_type_archive import RoundResult

app = typer.Typer()


@app.command(epilog="Example: rioni archive --url https://broker.example.org --to s3://lake/events --format delta")
@connected
def archive(
    session: BrokerSession,
    *,
    to: Annotated[str, typer.Option(help="Folder, or bucket of an S3-compatible service: s3://bucket/prefix.")],
    format_: Annotated[
        str, typer.Option("--format", help="Format of the tables: delta or iceberg.", metavar="FORMAT")
    ] = "delta",
    event_type: Annotated[
        list[str] | None,
        typer.Option(
            help="Archive this event type; may be repeated. By default those whose annotations ask for it.",
            autocompletion=completions.event_types,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Archive the events that exist now, then exit.")] = False,
    every: Annotated[
        float, typer.Option(help="Look for new events so often.", min=1, max=SECONDS_MAX, metavar="SECONDS")
    ] = 300,
    commit_events: Annotated[int, typer.Option(help="Commit after at most this many events.", min=1)] = 100_000,
    keep_json: Annotated[
        bool, typer.Option("--keep-json", help="Keep also the JSON of each event, in the column _event.")
    ] = False,
    catalog: Annotated[
        str | None,
        typer.Option(help="Iceberg: a catalog that PyIceberg's configuration names, or the URL of a database for one."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics on this port.", min=0, max=65_535)
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve the metrics on.")] = "127.0.0.1",
    config_file: ConfigFile = None,
) -> None:
    """Keep the events of event types in a data lake; with --once, exit code 1 if retention was faster.

    See [the archive](operating/archive.md). Without `--event-type` those are archived whose
    [annotations](reference/event-types.md#data-lake-annotations) ask for it. `--once` archives what is there and ends,
    otherwise it checks for new events every `--every` seconds, until SIGTERM. `rioni jobs list` shows how far it is.
    A restart of the broker, or an outage of a minute, is no error: it is tried again for two minutes without progress.
    Exit code 1: `--once` found that retention had removed events before. Needs `rioni[lake]`.
    """
    load_settings(config_file)
    from rioni.domain.errors import Unavailable

    try:
        from rioni.lake.archive import Archive, open_lake
    except ModuleNotFoundError as ex:
        raise Unavailable(f"rioni archive needs {ex.name}: pip install {requirement('lake')}") from ex
    from rioni.cli.job_reporter import JobReporter
    from rioni.domain.system.reports import ARCHIVE
    from rioni.lake.event_type_archive import ArchiveMetrics, CommitLimits
    from rioni.lake.location import parse_location

    metrics = ArchiveMetrics()
    lake = open_lake(format_, parse_location(to), catalog)
    limits = CommitLimits(events=commit_events, seconds=every)
    job = JobReporter(partial(_tell, session), ARCHIVE, to)
    stopped = threading.Event()
    work = Archive(
        _client(session, stopped),
        lake,
        event_type or (),
        limits,
        metrics,
        keeps_json=keep_json,
        progress=job.progress,
        note=job.note,
    )
    if metrics_port is not None:
        where = host_and_port(metrics_host, metrics.serve(metrics_host, metrics_port))
        say(f"Metrics are served on http://{where}/metrics")
    when_asked_to_end(lambda *_: stopped.set())
    if once:
        session.reach()
        work.check_names()
    with job:
        if not once:
            work.run(every, stopped)
            return
        done, failed = work.archive(stopped.is_set)
        _show(session.output, done)
        for problem in failed.values():
            raise problem
    _check_lost(done)


def _client(session: BrokerSession, stopped: threading.Event) -> "Client":
    """A client that rides out outages, until the command is asked to end."""
    from rioni.client import ClientError

    def pause(seconds: float) -> None:
        if stopped.wait(seconds):
            raise ClientError("The archive ended before the broker answered again")

    client = session.client_of(session.connection, sleep=pause)
    client.attempts = None
    return client


def _tell(session: BrokerSession, job_id: str, report: "JobReport") -> None:
    """Report the progress to the broker, once."""
    from msgspec.structs import asdict

    from rioni.client import ClientError
    from rioni.domain.errors import Unavailable

    try:
        session.client.request("PUT", "/jobs/{id}", path={"id": job_id}, body=asdict(report), retry_s=0)
    except ClientError as ex:
        raise Unavailable(f"{ex}.") from ex


def _show(output: Output, done: "dict[str, RoundResult]") -> None:
    for name, each in done.items():
        quarantined = f", {each.quarantined:,} in quarantine" if each.quarantined else ""
        lost = f", {each.lost:,} LOST to retention before" if each.lost else ""
        output.line(
            {"event_type": name, "archived": each.archived, "quarantined": each.quarantined, "lost": each.lost},
            f"{name}: {each.archived:,} events archived{quarantined}{lost}",
        )


def _check_lost(done: "dict[str, RoundResult]") -> None:
    if any(each.lost for each in done.values()):
        raise typer.Exit(FOUND)


# --- The command that converts archives of earlier releases ---


@app.command(epilog="Example: rioni convert-archive /srv/lake")
def convert_archive(
    to: Annotated[str, typer.Argument(help="Folder of the archive or audit table, or the bucket: s3://bucket/prefix.")],
    *,
    as_json: Json = False,
) -> None:
    """Convert an archive or an audit table of an earlier release to Delta; its files stay where they are.

    Earlier releases wrote tables with manifests of their own (`--format parquet`). Each table gets a log of Delta that
    names the same files, after a check that they are there and have the columns that the manifest names; then the
    manifests are removed. The archive goes on in it with `rioni archive --format delta`. End the archive before. A
    conversion that was interrupted is completed by the next one. Needs `rioni[lake]`.

    The log of an [audit table](operating/audit-table.md) gets a commit for each manifest, with its signed text; then
    the manifests are removed.
    """
    from rioni.domain.errors import Unavailable

    try:
        from rioni.lake.conversion import convert
    except ModuleNotFoundError as ex:
        raise Unavailable(f"rioni convert-archive needs {ex.name}: pip install {requirement('lake')}") from ex
    from rioni.lake.location import parse_location

    output = Output(as_json)
    for each in convert(parse_location(to)):
        output.line(each._asdict(), f"{each.event_type}, {each.kind}: {each.files:,} files, {each.rows:,} rows")
