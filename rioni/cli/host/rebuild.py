"""Commands that build read models from the log, and those about read models that were built next to the live ones."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from rioni.cli.host.options import ConfigFile, Data, Master, Scratch, SparkConf, load_settings, spark_settings
from rioni.cli.options import Json, moment
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import Output, opened, progress_bars, say
from rioni.cli.terminal.streams import CannotWrite


if TYPE_CHECKING:
    from rioni.projections.comparison import Difference
    from rioni.projections.generations.generation import Known


# --- The command that builds read models from the log, next to the live ones or to replace them ---

app = typer.Typer()

DIFFERENCES_SHOWN = 10
"""The most differences for each table and kind that are shown on the terminal."""


COLUMNS = ("table", "key", "kind", "live", "rebuilt")
"""The members of a difference that are written."""


class DifferenceFormat(StrEnum):
    """The format of differences."""

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
        str | None, typer.Option(help="Build next to the live ones, under this name.", metavar="NAME")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Last position, or time: RFC 3339 or a day in UTC.", metavar="MOMENT")
    ] = None,
    from_checkpoint: Annotated[
        bool,
        typer.Option("--from-checkpoint", help="Continue those of --into, after checking that the log is unchanged."),
    ] = False,
    form: Annotated[
        DifferenceFormat, typer.Option("--format", help="Format of the differences; a table shows only some of them.")
    ] = DifferenceFormat.TABLE,
    output: Annotated[Path | None, typer.Option(help="File for the differences.")] = None,
    master: Master = "",
    conf: SparkConf = [],  # noqa: B006 - never changed
    scratch: Scratch = None,
    data: Data = None,
    config_file: ConfigFile = None,
) -> None:
    """Rebuild read models from the internal log with Spark, without stopping the broker.

    Folds the whole log into new read models and swaps them in while the broker runs. `--dry-run` compares them with the
    live ones instead and exits with 1 on a difference. Needs `rioni[spark]` and Java. Only one rebuild at a time runs
    on a database, on any machine. The database must have the schema of this release, which its broker brings up to date
    when it starts, even where it then asks for a rebuild.

    All options are explained in [Spark](operating/spark.md). A rebuild that was killed is resumed by the same command.
    """
    if form is DifferenceFormat.PARQUET and output is None:
        raise typer.BadParameter("Parquet needs a file to write to: --output FILE", param_hint="--format")
    options = spark_settings(conf)
    settings = load_settings(config_file, data=data)
    from rioni.operations.rebuild import RebuildRequest
    from rioni.operations.rebuild import rebuild as run

    shown = DIFFERENCES_SHOWN if form is DifferenceFormat.TABLE else None
    wanted = RebuildRequest(
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
    say(
        f"{report.entries:,} log entries {'checked' if from_checkpoint else 'folded'} in {report.seconds:.1f} s: "
        f"{report.differences} differences{result}",
        err=form is not DifferenceFormat.TABLE and output is None,
    )
    if report.differences and dry_run:
        raise typer.Exit(FOUND)


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
            yield lambda each: _write(file, json.dumps({name: getattr(each, name) for name in COLUMNS}))


def _write(file: TextIO, line: str) -> None:
    file.write(f"{line}\n")


@contextmanager
def _parquet_writer(output: Path) -> Iterator[Callable[["Difference"], None]]:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    try:
        with parquet.ParquetWriter(output, schema) as writer:

            def write(each: "Difference") -> None:
                row = [each.table, json.dumps(each.key), each.kind, json.dumps(each.live), json.dumps(each.rebuilt)]
                writer.write_batch(pa.record_batch([[value] for value in row], schema=schema))

            yield write
    except OSError as ex:
        raise CannotWrite(f"{output} can't be written: {ex.strerror or ex}") from ex


# --- Commands about read models that were built next to the live ones ---

projections_app = typer.Typer(
    name="projections", help="Read models that were built next to the live ones.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of the read models.")]


@projections_app.command("list", epilog="Example: rioni projections list --data /srv/rioni")
def list_projections(
    *,
    data: Data = None,
    config_file: ConfigFile = None,
    json: Json = False,
) -> None:
    """Show the read models that there are: live, previous, and those built by `rioni rebuild --into`.

    Each with the position that it shows, the version of the fold, and its tables.
    """
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    shown = (
        {
            "name": each.name,
            "position": each.position,
            "fold": each.fold,
            "tables": [*each.tables],
            "created_at": each.created_at or None,
        }
        for each in rebuild_operations.projections(settings)
    )
    columns = {"name": "name", "position": "position", "fold": "fold", "created": "created_at"}
    Output(json).items(shown, columns | {"tables": lambda item: " ".join(item["tables"])})


@projections_app.command(epilog="Example: rioni projections promote green")
def promote(name: Name, *, data: Data = None, config_file: ConfigFile = None, json: Json = False) -> None:
    """Bring read models up to date and make them live; those that were live are kept as `previous`."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    _say_live(rebuild_operations.promote(settings, name), json=json)


@projections_app.command(epilog="Example: rioni projections rollback")
def rollback(*, data: Data = None, config_file: ConfigFile = None, json: Json = False) -> None:
    """Make those read models live again that were live before, up to date."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    _say_live(rebuild_operations.rollback(settings), json=json)


@projections_app.command(epilog="Example: rioni projections drop green")
def drop(name: Name, *, data: Data = None, config_file: ConfigFile = None, json: Json = False) -> None:
    """Remove read models that are not live; `new` is what an interrupted rebuild has left."""
    settings = load_settings(config_file, data=data)
    from rioni.operations import rebuild as rebuild_operations

    rebuild_operations.drop(settings, name)
    Output(json).line({"name": name}, f"{name} is removed.")


def _say_live(found: "Known", *, json: bool) -> None:
    Output(json).line(
        {"name": found.name, "tables": [*found.tables]},
        f"{found.name} is live, and what was live before is `previous`: {', '.join(found.tables)}.",
    )
