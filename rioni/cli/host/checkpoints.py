"""Commands of `rioni audit` that prove the contents of the log: checkpoints and proofs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.host.options import ConfigFile, Data, Master, Scratch, SparkConf, load_settings, spark_settings
from rioni.cli.options import Json, log_time
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import Output, opened, progress_bars, say


Key = Annotated[
    str | None, typer.Option("--log-key", help="The verifier key that signed it; by default those that the log names.")
]


def checkpoint(
    *,
    output: Annotated[Path | None, typer.Option(help="File to write; by default standard output.")] = None,
    data: Data = None,
    config_file: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Sign the present state of the log. Keep it: it shows later whether the log was changed.

    Keep the [checkpoint](reference/transparency-log.md#checkpoints) where the operators of the broker can't change it.
    A broker makes its key at its first start.
    """
    settings = load_settings(config_file, data=data)
    from rioni.operations import checkpoints as checkpoint_operations

    note = str(checkpoint_operations.checkpoint(settings))
    with opened(output) as file:
        file.write(json.dumps({"note": note}) + "\n" if as_json else note)


def table_format(text: str) -> str:
    """The format of a table; BadParameter for those of earlier releases."""
    if text != "delta":
        raise typer.BadParameter(
            f"{text!r} is not 'delta', the format of tables. JSON lines are what an export without --format writes. "
            "`rioni convert-archive FOLDER` converts tables of earlier releases to Delta."
        )
    return text


def export(
    *,
    to: Annotated[
        Path, typer.Option("--to", help="Folder; without --format it must not exist or be empty.", metavar="DIR")
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Add what is new to a Delta table, partitioned by day, by Spark.",
            parser=table_format,
            metavar="delta",
        ),
    ] = None,
    since: Annotated[str | None, typer.Option(help="First time, RFC 3339 or a day in UTC.", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option(help="End, not included.", metavar="TIME")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this subject did.")] = None,
    realm: Annotated[str | None, typer.Option(help="Only what the actor of this realm did.")] = None,
    resource: Annotated[str | None, typer.Option(help="Name of what was changed, or `kind:name`.")] = None,
    master: Master = "",
    conf: SparkConf = [],  # noqa: B006 - never changed
    scratch: Scratch = None,
    data: Data = None,
    config_file: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Export the log with a signed checkpoint; `verify_export.py` in the folder verifies it offline.

    Writes `entries.jsonl`, a signed checkpoint, the verifier keys, a manifest, and `verify_export.py`, which verifies
    all of it offline, with Python alone (signatures with the package `cryptography`). `--since`, `--until`, `--actor`,
    `--realm` and `--resource` select entries; each selected entry has a proof that it is in the log, but a selection
    can't prove that nothing was left out. Without these options the export has the whole log, and `verify_export.py
    FOLDER --seen CHECKPOINT` also shows that it extends an earlier checkpoint, and `--key` is the verifier key
    that you trust.

    With `--format delta` Spark adds what is new in the log to a [Delta table](operating/audit-table.md) in the folder,
    partitioned by day, for queries with SQL; `verify_export.py` verifies it as well.
    """
    selects = any(each is not None for each in (since, until, actor, realm, resource))
    if form is not None and selects:
        raise typer.BadParameter(
            "A table has the whole log: no --since, --until, --actor, --realm, --resource.", param_hint="--format"
        )
    if form is None and (master or conf or scratch):
        raise typer.BadParameter("These are for tables, which Spark writes: --format delta.", param_hint="--master")
    options = spark_settings(conf)
    settings = load_settings(config_file, data=data)
    if form is not None:
        from rioni.operations.audit_table.export import TableOrder, export_table

        order = TableOrder(to, master, options, scratch)
        with progress_bars() as progress:
            added, last = export_table(settings, order, progress)
        done = {"added": added, "position": last}
        said = f"{added:,} entries added, the table ends at position {last:,}"
    else:
        from rioni.operations import checkpoints as export_operations
        from rioni.projections.queries.audit_log import AuditFilter

        times = [None if text is None else log_time(text) for text in (since, until)]
        wanted = AuditFilter(since=times[0], until=times[1], actor=actor, realm=realm, resource=resource)
        with progress_bars() as progress:
            report = export_operations.export(settings, to, wanted, progress)
        done = {"entries": report.entries, "size": report.size}
        said = f"{report.entries:,} of {report.size:,} entries exported"
    Output(as_json).line({"folder": str(to), **done}, f"{said}. Verify them: python {to}/verify_export.py {to}")


def prove(
    position: Annotated[int, typer.Argument(help="Position of the entry in the log.", min=1)],
    *,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Prove that an entry is in the log: its leaf, the proof of inclusion, and a signed checkpoint, as JSON."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import checkpoints as checkpoint_operations

    say(json.dumps(checkpoint_operations.prove(settings, position), indent=2))


def rotate_key(
    *,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="The present key is lost, so it can't sign the new one: auditors have to know."),
    ] = False,
    data: Data = None,
    config_file: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Replace the key that signs checkpoints; the present one signs the new one, so that witnesses accept it.

    [Witnesses and auditors accept it](reference/transparency-log.md#rotation-of-the-key). The broker uses it from the
    next checkpoint on, without a restart. In a cluster copy the file to all nodes. `--lost` is for a key that is lost:
    the new one is not signed, and everybody who trusts the old one has to be told the new verifier key, which is
    printed.
    """
    settings = load_settings(config_file, data=data)
    from rioni.installation.from_config import key_file
    from rioni.operations import checkpoints as checkpoint_operations

    verifier = checkpoint_operations.rotate_key(settings, lost=lost)
    path = key_file(settings)
    output = Output(as_json)
    output.remark(f"{path} has a new key. The broker records it when it signs the next checkpoint, without a restart.")
    output.remark("In a cluster copy the file to all nodes now: those with the earlier key sign no more checkpoints.")
    if lost:
        output.remark("Tell all witnesses and auditors the new key: only the log links it to the lost one.")
    output.line({"file": str(path), "verifier": str(verifier)}, f"Verifier key: {verifier}")


def consistency(
    file: Annotated[Path, typer.Argument(help="An earlier checkpoint.")],
    *,
    log_key: Key = None,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Prove that the log extends an earlier checkpoint, as JSON; exit code 1 if it does not."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import checkpoints as checkpoint_operations

    proof, findings = checkpoint_operations.consistency(settings, file, log_key)
    if proof:
        say(json.dumps(proof, indent=2))
    for finding in findings:
        say(finding, err=True)
    if findings:
        raise typer.Exit(FOUND)
