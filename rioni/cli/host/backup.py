"""Commands that back up and restore a broker's data."""

from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.output import progress_bars


app = typer.Typer()


@app.command(epilog="Example: rioni backup --data /srv/rioni --to /backup/rioni")
def backup(
    *,
    to: Annotated[Path, typer.Option("--to", help="Folder of the backup; an earlier one there is updated.")],
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not check the copy as `rioni verify` does.")] = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Back up log, read models, cursors and events as of one instant, while the broker works.

    Copies into the folder `--to`, or updates an earlier backup there: [backups](operating/backup.md). The copy is
    checked, unless `--no-check` is given. For a cluster, see [there](operating/cluster.md#backup-and-restore).
    """
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap.backup import backup as run

    with progress_bars(only_on_terminal=True) as progress:
        report = run(settings, to, progress, checked=not no_check)
    for name, entry in report.manifest.files.items():
        typer.echo(f"{name}: {entry.size / 1e6:,.1f} MB")
    done = "not checked" if no_check else "checked"
    what = "Updated" if report.incremental else "Made"
    typer.echo(
        f"{what} the backup of {report.manifest.taken_at} in {to}: position {report.manifest.position} of the log, "
        f"{report.size / 1e6:,.1f} MB, of which {report.written / 1e6:,.1f} MB were written, {done}, in "
        f"{report.seconds:.1f} s."
    )
    if (settings.data / "log-signing.key").exists():
        typer.echo("The key log-signing.key was not copied: keep a copy of it in another, safe place.")


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
) -> None:
    """Restore a backup into the data directory of a broker that is stopped, or into a new one.

    See [backups](operating/backup.md#restoring).
    """
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap.restore import restore as run

    with progress_bars(only_on_terminal=True) as progress:
        report = run(source, settings.data, progress, accept_lost_events=accept_lost_events, delete_old=delete_old)
    if report.lost:
        typer.echo(f"Lost, and recorded in the internal log: {report.lost}.")
    if report.kept_in is not None:
        typer.echo(f"The files from before are in {report.kept_in}. Delete them when you no longer need them.")
    position = report.manifest.position
    typer.echo(f"Restored the backup of {report.manifest.taken_at}, position {position} of the log.")
