"""Commands that build read models from the log, beside the live ones or in their place."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from rioni.cli.options import FOUND, ConfigFile, Data, Master, Scratch, SparkConf, load_settings, spark_settings
from rioni.cli.output import CannotWrite, console_on, opened, plain_table, progress_bars
from rioni.cli.times import moment


if TYPE_CHECKING:
    from rioni.projections.generations.differences import Difference
    from rioni.projections.generations.generation import Known


app = typer.Typer()
projections = typer.Typer(help="Read models that were built beside the live ones.", no_args_is_help=True)

DIFFERENCES_SHOWN = 10
"""For each table and kind, on the terminal."""

Name = Annotated[str, typer.Argument(help="Name of the read models.")]


class DifferenceFormat(StrEnum):
    """How differences are written."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"


@app.command(epilog="Example: rioni rebuild --dry-run")
def rebuild(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare; exit code 1 on a difference.")] = False,
    only: Annotated[
        str, typer.Option(help="Some read models: event-types, timelines, subscriptions, storages, states, audit-log.")
    ] = "",
    into: Annotated[
        str | None, typer.Option(help="Build beside the live ones, under this name.", metavar="NAME")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Last position, or time: RFC 3339 or a day in UTC.", metavar="MOMENT")
    ] = None,
    from_checkpoint: Annotated[
        bool,
        typer.Option("--from-checkpoint", help="Continue those of --into, after checking that the log is unchanged."),
    ] = False,
    form: Annotated[
        DifferenceFormat, typer.Option("--format", help="Of the differences; all of them but in a table.")
    ] = DifferenceFormat.TABLE,
    output: Annotated[Path | None, typer.Option(help="File for the differences.")] = None,
    master: Master = "",
    conf: SparkConf = [],  # noqa: B006 - never changed
    scratch: Scratch = None,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Rebuild read models from the internal log with Spark, without stopping the broker."""
    if form is DifferenceFormat.PARQUET and output is None:
        raise typer.BadParameter("Parquet needs a file to write to: --output FILE", param_hint="--format")
    options = spark_settings(conf)
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap.rebuild_operations import Wanted
    from rioni.bootstrap.rebuild_operations import rebuild as run

    shown = DIFFERENCES_SHOWN if form is DifferenceFormat.TABLE else None
    wanted = Wanted(
        only=only,
        into=into,
        upto=None if to is None else moment(to),
        incremental=from_checkpoint,
        dry_run=dry_run,
        differences_max=shown,
        master=master,
        settings=options,
        scratch=scratch,
    )
    with progress_bars() as progress, _writer(form, output) as write:
        report = run(settings, wanted, progress=progress, found=write)
    result = "" if dry_run else f", the new read models are {'live' if into is None else f'in {into}'}"
    typer.echo(
        f"{report.entries:,} log entries {'checked' if from_checkpoint else 'folded'} in {report.seconds:.1f} s: "
        f"{report.differences} differences{result}",
        err=form is not DifferenceFormat.TABLE and output is None,
    )
    if report.differences and dry_run:
        raise typer.Exit(FOUND)


@projections.command("list", epilog="Example: rioni projections list --data /srv/rioni")
def list_projections(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object a line.")] = False,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Show the read models that there are: live, previous, and those built by `rioni rebuild --into`."""
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    found = list(rebuild_operations.projections(settings))
    with opened(None) as file:
        if as_json:
            for each in found:
                shown = {"name": each.name, "position": each.position, "fold": each.fold, "tables": [*each.tables]}
                file.write(json.dumps(shown | {"created_at": each.created_at or None}) + "\n")
            return
        table = plain_table("name", "position", "fold", "created", "tables")
        for each in found:
            table.add_row(each.name, f"{each.position:,}", str(each.fold), each.created_at, " ".join(each.tables))
        console_on(file).print(table)


@projections.command(epilog="Example: rioni projections promote green")
def promote(name: Name, *, data: Data = None, config_file: ConfigFile = None) -> None:
    """Bring read models up to date and make them live; those that were live are kept as `previous`."""
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    _say_live(rebuild_operations.promote(settings, name))


@projections.command(epilog="Example: rioni projections rollback")
def rollback(*, data: Data = None, config_file: ConfigFile = None) -> None:
    """Make those read models live again that were live before, up to date."""
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    _say_live(rebuild_operations.rollback(settings))


@projections.command(epilog="Example: rioni projections drop green")
def drop(name: Name, *, data: Data = None, config_file: ConfigFile = None) -> None:
    """Remove read models that are not live; `new` is what an interrupted rebuild has left."""
    settings = load_settings(config_file, data=data)
    from rioni.bootstrap import rebuild_operations

    rebuild_operations.drop(settings, name)
    typer.echo(f"{name} is removed.")


def _say_live(found: "Known") -> None:
    typer.echo(f"{found.name} is live, and what was live before is `previous`: {', '.join(found.tables)}.")


@contextmanager
def _writer(form: DifferenceFormat, output: Path | None) -> Iterator[Callable[["Difference"], None]]:
    """Write differences as they are found."""
    if form is DifferenceFormat.PARQUET:
        assert output is not None, "checked before"
        with _parquet_writer(output) as write:
            yield write
        return
    with opened(output) as file:
        if form is DifferenceFormat.TABLE:
            yield lambda each: _write(file, f"{each.table}, {', '.join(map(str, each.key))}: {each.kind}")
        else:
            yield lambda each: _write(file, json.dumps(each._asdict()))


def _write(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")


@contextmanager
def _parquet_writer(output: Path) -> Iterator[Callable[["Difference"], None]]:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.string()) for name in ("table", "key", "kind", "live", "rebuilt")])
    try:
        with parquet.ParquetWriter(output, schema) as writer:

            def write(each: "Difference") -> None:
                row = [each.table, json.dumps(each.key), each.kind, json.dumps(each.live), json.dumps(each.rebuilt)]
                writer.write_batch(pa.record_batch([[value] for value in row], schema=schema))

            yield write
    except OSError as ex:
        raise CannotWrite(f"{output} can't be written: {ex.strerror or ex}") from ex
