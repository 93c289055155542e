"""Events in files and pipes: options, reading by format, and reports of refused events."""

import functools
import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TextIO, cast

import typer

from rioni.cli.connections.session import BrokerSession
from rioni.cli.terminal.ending import FAILED, REFUSED
from rioni.cli.terminal.output import Meter, Output, meter, say
from rioni.cli.terminal.streams import created
from rioni.domain.errors import Invalid, RioniError


if TYPE_CHECKING:
    from rioni.cli.publishing.publishing import BatchPublisher, Line, Rejected, Upload
    from rioni.cli.publishing.records import Found
    from rioni.client import EventType


STDIN = "-"
USER_DEFINED = "user_defined"
REASONS_MAX = 20
"""The most refused events that are reported to people; a file of rejected events has all."""

Files = Annotated[list[str] | None, typer.Argument(help="Files, also `.gz`; without any, or for `-`, standard input.")]
BatchSize = Annotated[int, typer.Option("--batch", help="Events in one request, at most.", min=1, max=100_000)]
Continue = Annotated[bool, typer.Option("--continue", help="Go on after events that are refused.")]


@dataclass(frozen=True)
class Uploading:
    """Options about the events of files, and how they are published."""

    file_format: Annotated[
        Literal["jsonl", "json", "csv", "tsv"] | None,
        typer.Option("--format", help="Format of the files; default: by the ending of the name, else JSON."),
    ] = None
    types: Annotated[
        str,
        typer.Option(
            help="Types of columns of CSV that the schema does not determine: `price=number,paid=boolean`; types are "
            "`text`, `number`, `integer`, `boolean` and `json`.",
            metavar="NAME=TYPE,…",
        ),
    ] = ""
    key: Annotated[
        str | None,
        typer.Option(help="Member whose value becomes the compaction key, such as `order.id`.", metavar="PATH"),
    ] = None
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="Partition, where the producer chooses it.")
    ] = None
    batch: BatchSize = 500
    go_on: Continue = False
    rejected: Annotated[
        Path | None,
        typer.Option("--rejected", help="Write refused events there, with their line and the reason, as JSON lines."),
    ] = None

    def check(self, session: BrokerSession, event_type: "EventType") -> None:
        """Check that `--key` and `--partition` apply to the events of an event type; raises Invalid."""
        from rioni.client import Forbidden
        from rioni.client.encoding import CATEGORY_WITHOUT_METADATA
        from rioni.client.ranges import Locator

        if self.key is not None and event_type.category == CATEGORY_WITHOUT_METADATA:
            raise Invalid(f"Events of {event_type.name} have no metadata, and so no key: leave out --key.")
        if self.partition is None:
            return
        if event_type.partition_strategy != USER_DEFINED:
            raise Invalid(
                f"The broker chooses the partitions of {event_type.name}: --partition is for the strategy "
                f"{USER_DEFINED}."
            )
        # A user who may publish need not be one who may see the partitions.
        with suppress(Forbidden):
            Locator(session.client, event_type.name).bounds([self.partition])


def lines_of_files(
    files: Sequence[str], options: Uploading, event_type: "EventType", *, stop: bool
) -> Iterator["Line"]:
    """Read the events of files; each file is opened after the previous one has been read.

    Args:
        files: their names; `-` for standard input.
        options: of the user.
        event_type: whose schema knows the types of columns for which no option gives one.
        stop: whether a part that can't be read ends the command. Then all files but pipes are read once before, so that
            nothing of them is published if a part can't be read.

    Raises:
        Invalid: a file, or an option, can't be used; also while the events are read.
    """
    from rioni.cli.publishing.csv_records import parse_types
    from rioni.cli.publishing.publishing import readable

    if missing := [name for name in files if name != STDIN and not os.access(name, os.R_OK)]:
        raise Invalid(f"{missing[0]} can't be read: there is no such file, or no permission.")
    if STDIN in files and sys.stdin.isatty():
        say("Reading events from the terminal; Ctrl-D ends them.", err=True)
    file_format, column_types = options.file_format, parse_types(options.types)
    if stop:
        for name in filter(_can_be_read_twice, files):
            with _read_again(name):
                for _ in readable(_lines([name], file_format, column_types, event_type), "nothing was published"):
                    pass
    return _lines(files, file_format, column_types, event_type)


def _lines(
    files: Sequence[str], file_format: str | None, types: Mapping[str, str], event_type: "EventType"
) -> Iterator["Line"]:
    from rioni.cli.publishing.publishing import Line

    for name in files:
        with opened(name) as file:
            for each in _found(name, file, file_format, types, event_type):
                yield Line(_shown(name), each)


@functools.cache
def _warn_once(warning: str) -> None:
    say(f"Warning: {warning}", err=True)


def _warn(event_type: "EventType", names: Sequence[str]) -> None:
    from rioni.cli.publishing.checking import check_paths

    for warning in check_paths([event_type], names):
        _warn_once(warning)


def json_events(file: str | None) -> list[bytes]:
    """The events of a file, or of standard input, with a JSON object in each line; raises Invalid."""
    from rioni.cli.publishing.publishing import Line, readable
    from rioni.cli.publishing.records import json_lines, lines_of

    name = file or STDIN
    with opened(name) as source:
        found = list(json_lines(lines_of(source)))
    return [each.text for each in readable(Line(_shown(name), each) for each in found)]


def _shown(name: str) -> str:
    return "stdin" if name == STDIN else name


def _found(
    name: str, file: BinaryIO, file_format: str | None, types: Mapping[str, str], event_type: "EventType"
) -> Iterator["Found"]:
    from rioni.cli.publishing import records
    from rioni.cli.publishing.checking import schema_of
    from rioni.cli.publishing.csv_records import csv_events

    lines = records.lines_of(file)
    if file_format is None:
        file_format, lines = records.detected(name.removesuffix(".gz"), lines)
    if file_format in (records.CSV, records.TSV):
        schema = schema_of(event_type)
        delimiter = "," if file_format == records.CSV else "\t"
        return csv_events(
            lines,
            types,
            schema.document if schema else {},
            delimiter=delimiter,
            check=lambda names: _warn(event_type, names),
        )
    return records.json_lines(lines) if file_format == records.JSONL else records.json_values(lines)


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """A file, decompressed if its name ends with `.gz`, or standard input.

    Raises:
        Invalid: it can't be read, also if the block finds that.
    """
    try:
        if name == STDIN:
            yield _standard_input()
            return
        with Path(name).open("rb") as file:
            yield _inflated(file) if name.endswith(".gz") else file
    except Invalid as ex:
        raise Invalid(f"{_shown(name)} can't be read: {ex}") from ex
    except (OSError, EOFError, zlib.error) as ex:
        raise Invalid(f"{name} can't be read: {getattr(ex, 'strerror', None) or ex}.") from ex


def _inflated(file: BufferedReader) -> BinaryIO:
    if not file.peek(1):
        raise EOFError("it is empty, which no compressed file is")
    return cast("BinaryIO", gzip.GzipFile(fileobj=file))


def _can_be_read_twice(name: str) -> bool:
    return not is_interactive([name]) if name == STDIN else Path(name).is_file()


@contextmanager
def _read_again(name: str) -> Iterator[None]:
    """Go back in standard input to its earlier position; other files are opened again anyway."""
    if name != STDIN:
        yield
        return
    try:
        begin = os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR)
    except (OSError, ValueError):  # it is no file
        begin = sys.stdin.buffer.tell()
    yield
    try:
        os.lseek(sys.stdin.fileno(), begin, os.SEEK_SET)
    except (OSError, ValueError):
        sys.stdin.buffer.seek(begin)


def _standard_input() -> BinaryIO:
    """A separate file: at its end Python closes `sys.stdin`, which fails while a thread reads that."""
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
    session: BrokerSession,
    files: Sequence[str],
    lines: Iterator["Line"],
    publisher: "BatchPublisher",
    options: Uploading,
    *,
    event_type: "EventType",
    stop: bool,
    done: str,
    once: bool = False,
) -> None:
    """Publish events, and report; ends the command with 1 if some were refused, and with 2 if some can't be read.

    Args:
        session: of the command.
        files: the sources of the events.
        lines: their contents.
        publisher: of batches.
        options: of the user.
        event_type: as it is before.
        stop: whether to stop at the first event that is refused.
        done: what was done with the events, such as `published to orders`.
        once: whether a repetition stores only what is missing.
    """
    from rioni.cli.publishing.publishing import Completion, Upload, as_they_arrive
    from rioni.client import ClientError
    from rioni.client.encoding import CATEGORY_WITHOUT_METADATA

    with ExitStack() as stack:
        report = PublishingReport(session.output, stack, options.rejected)
        completion = Completion(event_type.name, key=options.key, partition=options.partition)
        work = Upload(
            publisher,
            complete=bytes if event_type.category == CATEGORY_WITHOUT_METADATA else completion.complete,
            event_type=event_type.name,
            batch=options.batch,
            once=once,
            variant=f"{options.key} {options.partition}",
            stop=stop,
            rejected=report.refused,
            progress=lambda _: report.progress(work),
        )
        try:
            # With keys made from the content, the time at which it comes must not matter.
            work.publish(as_they_arrive(lines) if is_interactive(files) and not once else lines)
            is_same = session.client.event_types.get(event_type.name).created_at == event_type.created_at
        except (ClientError, RioniError, KeyboardInterrupt, SystemExit):
            report.broken_off(work)
            raise
        if not is_same:
            raise Invalid(
                f"{event_type.name} was deleted and created again meanwhile: what was published before is gone."
            )
        # If a batch was stored earlier, the broker reports only that it is stored.
        report.end(work, f"{done}, now or by an earlier run," if once else done)
    if work.totals.unreadable:
        raise typer.Exit(FAILED)
    if work.totals.rejected:
        raise typer.Exit(REFUSED)


class PublishingReport:
    """Reports refused events, and the progress of the command.

    Args:
        output: of the command.
        stack: closes the file with the command.
        rejected: file for the refused events.
    """

    def __init__(self, output: Output, stack: ExitStack, rejected: Path | None) -> None:
        self._output = output
        self._meter: Meter = stack.enter_context(meter())
        self._file: TextIO | None = None
        self._said = 0
        if rejected is not None:
            self._file = stack.enter_context(created(rejected))

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
        """Report how many events were processed, and how, such as `published to orders`."""
        self._meter.clear()
        totals = upload.totals
        refused = f"; {totals.rejected:,} refused" if totals.rejected else ""
        took = f"{self._meter.seconds:,.1f} s ({self._meter.rate(totals.stored)})"
        self._output.line(
            {"event_type": upload.event_type, "events": totals.stored, "refused": totals.rejected},
            f"{totals.stored:,} events {done} in {took}{refused}.",
        )

    def broken_off(self, upload: "Upload") -> None:
        """Report where it ended early."""
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
