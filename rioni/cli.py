"""The command line: reads options, calls what does the work, and says in one line what the world has done wrong.

Exit codes: 0 if all is well, 1 where findings or differences were asked for and found, 2 if the command could not do
its work. The modules that do the work are imported by the commands, so that each one starts quickly.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from rioni import __version__
from rioni.config import SETTINGS, Config, load
from rioni.domain.errors import RioniError


if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rioni.measurement import Report


FOUND = 1
FAILED = 2
COLUMNS_MAX = 1_000
DEFAULT_URL = "http://localhost:8080"

app = typer.Typer(name="rioni", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
bench = typer.Typer(no_args_is_help=True, help="Measure a broker: any server of the API, at any base URL.")
config = typer.Typer(no_args_is_help=True, help="Look at the settings.")
app.add_typer(bench, name="bench")
app.add_typer(config, name="config")

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with settings.", metavar="FILE")]
Data = Annotated[Path | None, typer.Option(help=SETTINGS["data"].description)]
Port = Annotated[int | None, typer.Option(help=SETTINGS["port"].description)]
Url = Annotated[str, typer.Option(help="Base URL of the API.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as one line of JSON.")]
EventType = Annotated[str | None, typer.Option(help="Made if missing. [default: rioni-bench.<category>]")]
Connections = Annotated[int, typer.Option(min=1, max=1_000, help="Connections, each with one request at a time.")]
Seconds = Annotated[float, typer.Option(min=0.1, max=3_600, help="How long to measure.")]


class CannotWrite(RioniError):
    """A file that the user names can't be written."""


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
        typer.echo(f"Error: {ex}", err=True)
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
    config_file: ConfigFile = None,
) -> None:
    """Run the broker until Ctrl-C or SIGTERM."""
    settings = _settings(config_file, host=host, port=port, data=data, workers=workers)
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
    from rioni.demo import run

    run(settings, exit_after=exit_after, flights=flights)


@app.command(epilog="Example: rioni rebuild --dry-run")
def rebuild(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare; exit code 1 on a difference.")] = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Rebuild all read models from the internal log with Spark, while the broker goes on."""
    settings = _settings(config_file, data=data)
    from rioni import bootstrap

    with _progress() as progress:
        report = bootstrap.rebuild(settings, dry_run=dry_run, progress=progress)
    for table, key, kind in report.differences:
        typer.echo(f"{table}, {', '.join(map(str, key))}: {kind}")
    found = f"{len(report.differences)} differences" + ("" if dry_run else ", the new read models are live")
    typer.echo(f"{report.entries:,} log entries folded in {report.seconds:.1f} s: {found}")
    if report.differences and dry_run:
        raise typer.Exit(FOUND)


@app.command(epilog="Example: rioni verify --data /srv/rioni")
def verify(*, data: Data = None, config_file: ConfigFile = None) -> None:
    """Check the internal log (hash chain, positions, topics) and the stored events; exit code 1 on a finding."""
    settings = _settings(config_file, data=data)
    from rioni import bootstrap

    findings = 0
    for finding in bootstrap.verify(settings):
        typer.echo(finding)
        findings += 1
    typer.echo(f"{findings} findings" if findings else "Nothing is damaged or missing.")
    if findings:
        raise typer.Exit(FOUND)


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
    from rioni import bootstrap

    if form is AuditFormat.PARQUET and output is not None:
        with _progress() as progress:
            report = bootstrap.export_audit(settings, output, **wanted, progress=progress)
        position, digest = report.head
        typer.echo(f"{report.rows:,} entries written to {output}; the log ends at {position} with {digest.hex()}")
        return
    write = _write_table if form is AuditFormat.TABLE else _write_json_lines
    with _output(output) as file:
        write(bootstrap.audit(settings, **wanted), file)


@bench.command("publish", epilog="Example: rioni bench publish --connections 8 --batch 100 --size 200 --seconds 10")
def bench_publish(
    *,
    url: Url = DEFAULT_URL,
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
    from rioni import bench as load

    plan = load.Publish(
        url=url,
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
    from rioni import bench as load

    plan = load.Consume(
        url=url,
        event_type=event_type,
        connections=connections,
        batch=batch,
        window=window,
        read_from=read_from.value,
        seconds=seconds,
        events=events,
    )
    _report(load.consume(plan), json=json)


@config.command("show", epilog="Example: RIONI_PORT=8081 rioni config show")
def config_show(*, config_file: ConfigFile = None) -> None:
    """Show every setting, its value, and where the value comes from."""
    loaded = load(file=config_file)
    table = _table("setting", "value", "source")
    for setting in SETTINGS.values():
        value = setting.show(getattr(loaded.config, setting.name))
        table.add_row(setting.name, value, loaded.sources[setting.name])
    _console(sys.stdout).print(table)


def _settings(file: Path | None, **flags: object) -> Config:
    return load(flags, file=file).config


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


def _console(file: TextIO) -> "Console":
    from rich.console import Console

    # What is read by a program, or later, is not folded to the width of anybody's screen.
    width = None if file.isatty() else COLUMNS_MAX
    return Console(file=file, width=width, highlight=False, markup=False)


def _table(*headings: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of a job in phases, on stderr."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def show(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase)
            bars.update(tasks[phase], completed=done, total=total or None)

        yield show


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as ex:
        raise CannotWrite(f"{path} can't be written: {ex.strerror}.") from ex


def _write_table(entries: Iterable[dict[str, Any]], file: TextIO) -> None:
    columns = {
        "position": "position",
        "when": "recorded_at",
        "who": "actor",
        "from": "client",
        "what": "topic",
        "resource": "resource",
    }
    table = _table(*columns)
    for entry in entries:
        table.add_row(*(str(entry[name]) for name in columns.values()))
    _console(file).print(table)


def _write_json_lines(entries: Iterable[dict[str, Any]], file: TextIO) -> None:
    import orjson

    for entry in entries:
        states = {name: orjson.Fragment(entry[name] or "null") for name in ("before", "after")}
        # The names of the columns are of a subclass of str.
        file.write(orjson.dumps(entry | states, option=orjson.OPT_NON_STR_KEYS).decode() + "\n")


def _report(report: "Report", *, json: bool) -> None:
    if json:
        typer.echo(report.json())
    else:
        report.show(_console(sys.stdout))
    if report.failed:
        raise typer.Exit(FOUND)
