"""Commands of operators and auditors on a broker's data: rebuild, migrate, verify, accept losses, audit."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.options import FOUND, ConfigFile, Data, load_settings
from rioni.cli.output import opened, progress_bars, write_json_lines, write_table
from rioni.config.settings import Config


app = typer.Typer()


class AuditFormat(StrEnum):
    """How the audit trail is written."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"


@app.command(epilog="Example: rioni rebuild --dry-run")
def rebuild(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare; exit code 1 on a difference.")] = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Rebuild all read models from the internal log with Spark, without stopping the broker."""
    settings = load_settings(config_file, data=data)
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
    target = load_settings(to)
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
    settings = load_settings(config_file, data=data)
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
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap.consistency import acceptance

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
    settings = load_settings(config_file, data=data)
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
