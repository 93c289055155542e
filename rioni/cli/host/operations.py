"""Commands of operators on a broker's data: migrate, verify, accept losses."""

from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, load_settings
from rioni.cli.host.problems import write_problems
from rioni.cli.options import Json
from rioni.cli.terminal.exit_codes import FOUND
from rioni.cli.terminal.output import Output, progress_bars
from rioni.config.settings import Config
from rioni.files.plain import check_folder


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
    unusual though nothing is damaged, and [what no check shows](operating/backup.md#what-no-check-shows). Writes
    nothing, migrates nothing, needs no writable directory, and may run beside the broker or on a copy. On a terminal it
    shows its progress. A long log is checked by several processes. `--restored` compares also [the servers of a cluster
    that were restored](operating/cluster.md#backup-and-restore).

    The log has to extend each [checkpoint](reference/transparency-log.md#checkpoints) that is given. They have to be
    signed by the key `--log-key`, by default by one that the log itself names; auditors who distrust the broker keep
    that key with their checkpoints.
    """
    settings = load_settings(config_file, data=data)
    from rioni.operations import admin as admin_operations

    with progress_bars() as progress:
        problems = admin_operations.check(settings, progress, restored=restored, checkpoints=checkpoint, key=log_key)
        found = write_problems(problems, admin_operations.remarks(settings), as_json=json)
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
    """Accept inconsistent stores, and lose what is missing; the broker has to be stopped.

    Lets the broker start with files that do not belong together: [backups](operating/backup.md). For a cluster run it
    on one node, with its settings, when all are stopped. `--reason` is recorded in the internal log. Use it only if
    there is no matching backup.
    """
    settings = load_settings(config_file, data=data)
    from rioni.installation import acceptance

    findings = acceptance.accept_loss(settings, reason)
    said = "Accepted; the decision is in the internal log." if findings else "Nothing is missing."
    Output(json).line({"accepted": [str(finding) for finding in findings]}, "\n".join([*map(str, findings), said]))
