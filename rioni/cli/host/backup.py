"""Commands that back up and restore a broker's data."""

from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output, progress_bars


app = typer.Typer()


@app.command(epilog="Example: rioni backup --data /srv/rioni --to /backup/rioni")
def backup(
    *,
    to: Annotated[Path, typer.Option("--to", help="Folder of the backup; an earlier one there is updated.")],
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not check the copy as `rioni verify` does.")] = False,
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Back up log, read models, cursors and events as of one instant, while the broker works.

    Copies into the folder `--to`, or updates an earlier backup there: [backups](operating/backup.md). The copy is
    checked, unless `--no-check` is given. [`rioni jobs list`](reference/jobs.md) shows how far it is. For a cluster,
    see [there](operating/cluster.md#backup-and-restore).
    """
    settings = load_settings(config_file, data=data)
    from rioni.domain.system.jobs import BACKUP
    from rioni.operations.backup import backup as run
    from rioni.operations.backup import host_jobs
    from rioni.tools.job_reporter import JobReporter

    with progress_bars() as show, JobReporter(host_jobs(settings), BACKUP, str(to)) as job:

        def progress(phase: str, done: int, total: int) -> None:
            show(phase, done, total)
            job.progress(phase, done, total)

        report = run(settings, to, progress, checked=not no_check)
        job.note(
            f"{report.size:,} bytes, of which {report.written:,} were written; position {report.manifest.position}"
        )
    files = {name: entry.size for name, entry in report.manifest.files.items()}
    done = "not checked" if no_check else "checked"
    what = "Updated" if report.incremental else "Made"
    output = Output(json)
    output.line(
        {
            "folder": str(to),
            "taken_at": report.manifest.taken_at,
            "position": report.manifest.position,
            "bytes": report.size,
            "written_bytes": report.written,
            "incremental": report.incremental,
            "checked": not no_check,
            "seconds": round(report.seconds, 3),
            "files": files,
        },
        "".join(f"{name}: {size / 1e6:,.1f} MB\n" for name, size in files.items())
        + f"{what} the backup of {report.manifest.taken_at} in {to}: position {report.manifest.position} of the log, "
        f"{report.size / 1e6:,.1f} MB, of which {report.written / 1e6:,.1f} MB were written, {done}, in "
        f"{report.seconds:.1f} s.",
    )
    if (settings.data / "log-signing.key").exists():
        output.remark("The key log-signing.key was not copied: keep a copy of it in another, safe place.")


@app.command(epilog="Example: rioni restore --from /backup/rioni --data /srv/rioni")
def restore(
    *,
    source: Annotated[Path, typer.Option("--from", help="Folder with the backup.")],
    data: Data = None,
    accept_lost_events: Annotated[
        bool, typer.Option("--accept-lost-events", help="Lose what is newer than the backup; the log records it.")
    ] = False,
    delete_old: Annotated[
        bool, typer.Option("--delete-old", help="Delete the replaced files instead of keeping them.")
    ] = False,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Restore a backup into the data directory of a broker that is stopped, or into a new one.

    See [backups](operating/backup.md#restoring).
    """
    settings = load_settings(config_file, restoring=True, data=data)
    from rioni.operations.restore import restore as run

    with progress_bars() as progress:
        report = run(source, settings.data, progress, accept_lost_events=accept_lost_events, delete_old=delete_old)
    output = Output(json)
    if report.lost:
        output.remark(f"Lost, and recorded in the internal log: {report.lost}.")
    if report.kept_in is not None:
        output.remark(f"The files from before are in {report.kept_in}. Delete them when you no longer need them.")
    taken_at, position = report.manifest.taken_at, report.manifest.position
    kept_in = None if report.kept_in is None else str(report.kept_in)
    output.line(
        {"taken_at": taken_at, "position": position, "lost": str(report.lost or ""), "kept_in": kept_in},
        f"Restored the backup of {taken_at}, position {position} of the log.",
    )
