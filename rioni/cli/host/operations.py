"""Commands of operators on a broker's data: migrate, verify, accept losses, back up and restore."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.options import Json
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import Output, progress_bars, say
from rioni.config.settings import Config
from rioni.files.plain import check_folder


if TYPE_CHECKING:
    from rioni.operations.verification import Inconsistency


# --- Output of `rioni verify`: the findings, for people or as JSON lines ---


def write_problems(problems: Iterable["Inconsistency"], remarks: Iterable[str], *, as_json: bool) -> int:
    """Write each problem as it is found, then remarks and a summary; return how many problems there are.

    Remarks are left out if the registry, which they are about, can't be read.
    """
    from rioni.installation.stores import counted

    began_s = time.monotonic()
    counts: Counter[str] = Counter()
    first: int | None = None
    for problem in problems:
        counts[problem.store] += 1
        if problem.store == "log" and problem.position is not None:
            first = problem.position if first is None else min(first, problem.position)
        say(json.dumps(problem.as_object()) if as_json else str(problem))
    total = counts.total()
    said = [] if counts["registry.db"] else list(remarks)
    if as_json:
        summary = {"findings": total, "stores": counts, "first_log_position": first, "remarks": said}
        say(json.dumps(summary | {"seconds": round(time.monotonic() - began_s, 3)}))
        return total
    for remark in said:
        say(f"Remark: {remark}.")
    if first is not None:
        say(f"The log is damaged from position {first} on: its hash chain proves the entries before it only.")
    say(counted(total, "finding") if total else "Nothing is damaged or missing.")
    return total


# --- Commands of operators on a broker's data: migrate, verify, accept losses ---

app = typer.Typer()


@app.command(epilog="Example: rioni migrate --data /srv/rioni --to cluster.toml")
def migrate(
    *,
    to: Annotated[
        Path, typer.Option("--to", help="TOML file with the settings of the cluster's nodes.", metavar="FILE")
    ],
    data: Data = None,
    json: Json = False,
) -> None:
    """Move log, events and cursors of a broker that is stopped to a cluster; interrupted, do it again.

    The file `--to` names the settings of the cluster; both sides are compared at the end:
    [migration](operating/migration.md).
    """
    target = load_settings(to)
    source = data or Config().data
    check_folder(source)
    from rioni.operations import migration

    with progress_bars() as progress:
        report = migration.migrate(source, target, progress)
    position, digest = report.head.position, report.head.hash.hex()
    Output(json).line(
        {
            "log_entries": position,
            "events": report.events,
            "subscriptions": report.subscriptions,
            "log_hash": digest,
        },
        f"Moved {position:,} entries of the log, {report.events:,} events and {report.subscriptions:,} "
        f"subscriptions, and found them as they were. The log that was moved ends with {digest}.",
    )


@app.command(epilog="Example: rioni verify --data /srv/rioni")
def verify(
    *,
    restored: Annotated[
        bool, typer.Option("--restored", help="Compare also the servers of a stopped cluster that was restored.")
    ] = False,
    checkpoint: Annotated[
        list[Path], typer.Option(help="A checkpoint that was seen earlier; may be repeated.", metavar="FILE")
    ] = [],  # noqa: B006 - never changed
    log_key: Annotated[
        str | None, typer.Option(help="The verifier key that signed it; by default those that the log names.")
    ] = None,
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Check log, read models, stored events and whether all files fit; exit code 1 on a finding.

    Checks the log (hash chain, positions, topics, data), compares the read models with it row by row, and checks the
    stored events and whether [all files belong together](operating/backup.md). Each finding is a line that names the
    place and what depends on it. `--json` prints each finding as an object (`store`, `position`, `finding`, `affects`),
    and a summary at the end (`findings`, `stores`, `first_log_position`, `remarks`, `seconds`). Remarks name what is
    unusual though nothing is damaged, and [data that no check covers](operating/backup.md#data-that-no-check-covers).
    Writes nothing, migrates nothing, needs no writable directory, and may run while the broker runs, or on a copy. On a
    terminal it shows its progress. A long log is checked by several processes. `--restored` compares also [the servers
    of a cluster that were restored](operating/cluster.md#backup-and-restore).

    The log has to extend each [checkpoint](reference/transparency-log.md#checkpoints) that is given. They have to be
    signed by the key `--log-key`, by default by one that the log itself names; auditors who distrust the broker keep
    that key with their checkpoints.
    """
    settings = load_settings(config_file, data=data)
    from rioni.installation.opened import opened
    from rioni.operations.verification import check, remarks

    with (
        progress_bars() as progress,
        opened(settings, progress, restored=restored, checkpoints=checkpoint, key=log_key) as installation,
    ):
        found = write_problems(check(installation), remarks(installation), as_json=json)
    if found:
        raise typer.Exit(FOUND)


@app.command("accept-loss", epilog="Example: rioni accept-loss --data /srv/rioni --reason 'disk of node 3 died'")
def accept_loss(
    *,
    reason: Annotated[str, typer.Option(help="Recorded in the internal log, with what was found.")],
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Accept inconsistent stores, and lose the missing data; the broker must be stopped.

    Lets the broker start with files that do not belong together: [backups](operating/backup.md). For a cluster run it
    on one node, with its settings, when all are stopped. `--reason` is recorded in the internal log. Use it only if
    there is no matching backup.
    """
    settings = load_settings(config_file, data=data)
    from rioni.installation import acceptance

    findings = acceptance.accept_loss(settings, reason)
    said = "Accepted; the decision is in the internal log." if findings else "Nothing is missing."
    Output(json).line({"accepted": [str(finding) for finding in findings]}, "\n".join([*map(str, findings), said]))


# --- Commands that back up and restore a broker's data ---


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
    from rioni.cli.job_reporter import JobReporter
    from rioni.domain.system.reports import BACKUP
    from rioni.operations.backup import backup as run
    from rioni.operations.backup import host_jobs

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
        bool,
        typer.Option(
            "--accept-lost-events", help="Accept the loss of newer data than the backup has; the log records it."
        ),
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
