"""Commands of auditors on a broker's data: the audit trail."""

from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.host import checkpoints, history
from rioni.cli.host.audit_trail import write_json_lines, write_table
from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output, opened, progress_bars, say
from rioni.cli.terminal.times import log_time


app = typer.Typer(name="audit")


class AuditFormat(StrEnum):
    """How the audit trail is written."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"


@app.callback(
    invoke_without_command=True,
    epilog="Example: rioni audit --since 2026-01-01 --actor jane --format jsonl --output audit.jsonl",
)
def audit(
    context: typer.Context,
    *,
    since: Annotated[str | None, typer.Option(help="First time, RFC 3339 or a day in UTC.", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option(help="End, not included.", metavar="TIME")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what subjects of this name did.")] = None,
    realm: Annotated[str | None, typer.Option(help="Only what the actor of this realm did.")] = None,
    resource: Annotated[str | None, typer.Option(help="Name of what was changed, or `kind:name`.")] = None,
    form: Annotated[AuditFormat, typer.Option("--format", help="Parquet is written by Spark.")] = AuditFormat.TABLE,
    output: Annotated[Path | None, typer.Option(help="File to write; for Parquet a folder.")] = None,
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Read from the data on this host who changed what, when, from where: every administrative change ever made.

    Of timelines also how: what an event type has moved from and to. No broker is asked, nor by the other commands here
    but `list` and `denials`, which ask a running broker over HTTP for what its users may see; standard error names the
    source. The format `jsonl` has the states before and after, `parquet` is written by Spark, partitioned by day.
    """
    if context.invoked_subcommand is not None:
        return
    wanted = {"since": _time(since), "until": _time(until), "actor": actor, "realm": realm, "resource": resource}
    if json and form is AuditFormat.TABLE:
        form = AuditFormat.JSONL
    if form is AuditFormat.PARQUET and output is None:
        raise typer.BadParameter("Parquet needs a folder to write to: --output FOLDER", param_hint="--format")
    settings = load_settings(config_file, data=data)
    from rioni.installation.database import damage_reported
    from rioni.operations import admin as admin_operations

    if form is AuditFormat.PARQUET and output is not None:
        with progress_bars() as progress:
            report = admin_operations.export_audit(settings, output, **wanted, progress=progress)
        position, digest = report.head
        Output(json).line(
            {"folder": str(output), "entries": report.rows, "position": position, "log_hash": digest.hex()},
            f"{report.rows:,} entries written to {output}; the log ends at {position} with {digest.hex()}",
        )
        return
    write = write_table if form is AuditFormat.TABLE else write_json_lines
    entries = admin_operations.audit(settings, **wanted)
    first = [*islice(entries, 1)]
    with opened(output) as file, damage_reported():
        write(chain(first, entries), file)
    if not first and resource is not None and (near := admin_operations.nearest_resource(settings, resource)):
        say(f"Did you mean {near}?", err=True)
    if form is AuditFormat.TABLE:
        source = settings.data if settings.database is None else "the database of its settings"
        say(f"Read on this host from {source}; `rioni audit list` asks a running broker.", err=True)


app.command(epilog="Example: rioni audit log event-type:order.created")(history.log)
app.command(epilog="Example: rioni audit show order.created --as-of 2026-01-31T12:00:00Z")(history.show)
app.command(epilog="Example: rioni audit diff --from 2026-01-01 --to 4711 --resource order.created")(history.diff)
app.command(epilog="Example: rioni audit checkpoint --output monday.checkpoint")(checkpoints.checkpoint)
app.command(epilog="Example: rioni audit export --to /srv/audit --format parquet")(checkpoints.export)
app.command(epilog="Example: rioni audit prove 4711")(checkpoints.prove)
app.command("rotate-key", epilog="Example: rioni audit rotate-key --data /srv/rioni")(checkpoints.rotate_key)
app.command(epilog="Example: rioni audit consistency monday.checkpoint")(checkpoints.consistency)


def _time(text: str | None) -> str | None:
    return None if text is None else log_time(text)
