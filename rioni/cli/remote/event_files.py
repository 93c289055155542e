"""Events in files and pipes: options, reading by format, and what is said about events that are refused."""

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO, cast

import typer

from rioni.cli.exit_codes import REFUSED
from rioni.cli.meter import Meter, meter
from rioni.cli.output import CannotWrite, Output
from rioni.cli.session import Session
from rioni.domain.errors import Invalid, RioniError


if TYPE_CHECKING:
    from rioni.client import EventType
    from rioni.tools.events.publishing import BatchPublisher
    from rioni.tools.events.uploading import Line, Rejected, Upload


STDIN = "-"
REASONS_MAX = 20
"""Refused events that people are told about; a file of rejected events has all."""

Files = Annotated[list[str] | None, typer.Argument(help="Files, also `.gz`; without any, or for `-`, standard input.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="`jsonl`, `json`, `csv` or `tsv`; otherwise by the ending of the file's name, or by its first line.",
    ),
]
Types = Annotated[
    str,
    typer.Option(
        help="Types of columns of CSV that the schema does not tell: `price=number,paid=boolean`; there are `text`, "
        "`number`, `integer`, `boolean` and `json`.",
        metavar="NAME=TYPE,…",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(help="Member whose value becomes the compaction key, such as `order.id`.", metavar="PATH"),
]
ToPartition = Annotated[str | None, typer.Option("--partition", "-p", help="Partition, where the producer chooses it.")]
BatchSize = Annotated[int, typer.Option("--batch", help="Events in one request, at most.", min=1, max=100_000)]
Continue = Annotated[bool, typer.Option("--continue", help="Go on after events that are refused.")]
RejectedFile = Annotated[
    Path | None,
    typer.Option("--rejected", help="Write refused events there, with their line and the reason, as JSON lines."),
]


def lines_of_files(
    files: Sequence[str], file_format: str | None, types: str, event_type: "EventType"
) -> Iterator["Line"]:
    """What the files contain; each is opened when the one before has been read.

    Args:
        files: their names; `-` for standard input.
        file_format: of all; None to look at each.
        types: of columns, as the user gives them.
        event_type: whose schema knows the types of the others.

    Raises:
        Invalid: a file, or an option, can't be used.
    """
    from rioni.tools.events import records
    from rioni.tools.events.csv_records import parse_types

    if file_format is not None and file_format not in records.FORMATS:
        raise Invalid(f"{file_format} is not a format; there are {', '.join(records.FORMATS)}.")
    if missing := [name for name in files if name != STDIN and not os.access(name, os.R_OK)]:
        raise Invalid(f"{missing[0]} can't be read: there is no such file, or no permission.")
    if STDIN in files and sys.stdin.isatty():
        typer.echo("Reading events from the terminal; Ctrl-D ends them.", err=True)
    return _lines(files, file_format, parse_types(types), event_type)


def _lines(
    files: Sequence[str], file_format: str | None, types: Mapping[str, str], event_type: "EventType"
) -> Iterator["Line"]:
    from rioni.tools.events import records
    from rioni.tools.events.checking import schema_of
    from rioni.tools.events.csv_records import csv_events
    from rioni.tools.events.uploading import Line

    for name in files:
        with _opened(name) as file:
            lines = records.lines_of(file)
            found_format = file_format
            if found_format is None:
                found_format, lines = records.detected(name.removesuffix(".gz"), lines)
            if found_format in (records.CSV, records.TSV):
                schema = schema_of(event_type)
                delimiter = "," if found_format == records.CSV else "\t"
                found = csv_events(lines, types, schema.document if schema else {}, delimiter=delimiter)
            else:
                found = records.json_lines(lines) if found_format == records.JSONL else records.json_values(lines)
            for each in found:
                yield Line("stdin" if name == STDIN else name, each)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STDIN:
        yield _standard_input()
        return
    try:
        with Path(name).open("rb") as file:
            yield cast("BinaryIO", gzip.GzipFile(fileobj=file)) if name.endswith(".gz") else file
    except (OSError, EOFError, zlib.error) as ex:
        raise Invalid(f"{name} can't be read: {getattr(ex, 'strerror', None) or ex}.") from ex


def _standard_input() -> BinaryIO:
    """A file of its own: at its end Python closes `sys.stdin`, which fails while a thread reads that."""
    try:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    except (OSError, ValueError):
        return sys.stdin.buffer


def is_interactive(files: Sequence[str]) -> bool:
    """Whether events may come slowly, from a pipe or a terminal."""
    if STDIN not in files:
        return False
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def upload(
    session: Session,
    files: Sequence[str],
    lines: Iterator["Line"],
    publisher: "BatchPublisher",
    *,
    event_type: str,
    complete: Callable[[bytes], bytes],
    batch: int,
    once: bool,
    stop: bool,
    rejected: Path | None,
    done: str,
    variant: str = "",
) -> None:
    """Publish events, and report; ends the command with 1 if some were refused.

    Args:
        session: of the command.
        files: where the events come from.
        lines: what they contain.
        publisher: of batches.
        event_type: the name.
        complete: makes an event complete.
        batch: events of a batch at most.
        once: whether a repetition stores only what is missing.
        stop: whether to stop at the first event that is refused.
        rejected: file for what is refused.
        done: what was done with the events, such as `published to orders`.
        variant: what else events depend on, where a repetition is recognised.
    """
    from rioni.client import ClientError
    from rioni.tools.events.uploading import Upload, as_they_arrive

    with ExitStack() as stack:
        report = Report(session.output, stack, rejected)
        work = Upload(
            publisher,
            complete=complete,
            event_type=event_type,
            batch=batch,
            once=once,
            variant=variant,
            stop=stop,
            rejected=report.refused,
            progress=lambda _: report.progress(work),
        )
        try:
            # With keys made from the content, the time at which it comes must not matter.
            work.publish(as_they_arrive(lines) if is_interactive(files) and not once else lines)
        except (ClientError, RioniError, KeyboardInterrupt):
            report.broken_off(work)
            raise
        report.end(work, done)
    if work.totals.rejected:
        raise typer.Exit(REFUSED)


class Report:
    """Says what is refused, and how far the command is.

    Args:
        output: of the command.
        stack: closes the file with the command.
        rejected: file for what is refused.
    """

    def __init__(self, output: Output, stack: ExitStack, rejected: Path | None) -> None:
        self._output = output
        self._meter: Meter = stack.enter_context(meter())
        self._file: TextIO | None = None
        self._said = 0
        if rejected is not None:
            try:
                self._file = stack.enter_context(rejected.open("w", encoding="utf-8"))
            except OSError as ex:
                raise CannotWrite(f"{rejected} can't be written: {ex.strerror}.") from ex

    def refused(self, rejected: "Rejected") -> None:
        """Take note of something that was not published."""
        self._said += 1
        if self._said <= REASONS_MAX:
            self._meter.clear()
            self._output.note(f"{rejected.source}:{rejected.line}: {rejected.step}: {rejected.reason}")
        elif self._said == REASONS_MAX + 1:
            self._output.note("Further ones are counted" + (", and are in the file." if self._file else "."))
        if self._file is not None:
            self._file.write(_line(rejected) + "\n")

    def progress(self, upload: "Upload") -> None:
        """Show how far it is, on a terminal."""
        totals = upload.totals
        self._meter.show(
            lambda: (
                f"{totals.stored:,} events, {self._meter.rate(totals.stored)}"
                + (f", {totals.rejected:,} refused" if totals.rejected else "")
            )
        )

    def end(self, upload: "Upload", done: str) -> None:
        """Say what was done with so many events, such as `published to orders`."""
        self._meter.clear()
        totals = upload.totals
        refused = f"; {totals.rejected:,} refused" if totals.rejected else ""
        took = f"{self._meter.seconds:,.1f} s ({self._meter.rate(totals.stored)})"
        self._output.line(
            {"event_type": upload.event_type, "events": totals.stored, "refused": totals.rejected},
            f"{totals.stored:,} events {done} in {took}{refused}.",
        )

    def broken_off(self, upload: "Upload") -> None:
        """Say where it ended early."""
        self._meter.clear()
        last = upload.totals.last
        where = "" if last is None else f", up to {last.source}:{last.found.line}"
        self._output.note(f"Not complete: {upload.totals.stored:,} events are stored{where}.")


def _line(rejected: "Rejected") -> str:
    import msgspec

    value: dict[str, Any] = {
        "source": rejected.source,
        "line": rejected.line,
        "step": rejected.step,
        "reason": rejected.reason,
    }
    try:
        msgspec.json.decode(rejected.text)
        value["event"] = msgspec.Raw(b" ".join(rejected.text.splitlines()))
    except msgspec.MsgspecError:
        value["text"] = rejected.text.decode(errors="replace")
    return msgspec.json.encode(value).decode()
