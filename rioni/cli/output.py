"""Output of commands: tables, JSON lines and progress, to the screen or a file."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rioni.domain.errors import RioniError


if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


COLUMNS_MAX = 1_000


class CannotWrite(RioniError):
    """A file that the user names can't be written."""


def console_on(file: TextIO) -> "Console":
    """What writes tables and figures to a file."""
    from rich.console import Console

    # Output to a file or program is not folded to the width of a screen.
    width = None if file.isatty() else COLUMNS_MAX
    return Console(file=file, width=width, highlight=False, markup=False)


def plain_table(*headings: str) -> "Table":
    """A table without lines, that folds what is too long."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


@contextmanager
def progress_bars(*, only_on_terminal: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of a job in phases, on stderr.

    Args:
        only_on_terminal: whether a file or program gets nothing, not even the final state.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # Output goes above the bars, but not to the screen where it is meant for a file.
    bars = Progress(
        console=console,
        redirect_stdout=sys.stdout.isatty(),
        disable=only_on_terminal and not console.is_terminal,
    )
    tasks: dict[str, Any] = {}

    def show(phase: str, done: int, total: int) -> None:
        bars.start()
        if phase not in tasks:
            tasks[phase] = bars.add_task(phase)
        bars.update(tasks[phase], completed=done, total=total or None)

    try:
        yield show
    finally:
        # Without bars, as where the job can't begin, stopping would leave an empty line.
        if tasks:
            bars.stop()


@contextmanager
def opened(path: Path | None) -> Iterator[TextIO]:
    """The file that the user names, or standard output.

    Raises:
        CannotWrite: the text says why.
    """
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as ex:
        raise CannotWrite(f"{path} can't be written: {ex.strerror}.") from ex


def write_table(entries: Iterable[dict[str, Any]], file: TextIO) -> None:
    """Write the audit trail for people."""
    columns = {
        "position": "position",
        "when": "recorded_at",
        "who": "actor",
        "from": "client",
        "what": "topic",
        "resource": "resource",
    }
    table = plain_table(*columns, "how")
    for entry in entries:
        table.add_row(*(str(entry[name]) for name in columns.values()), _how(entry))
    console_on(file).print(table)


def write_json_lines(entries: Iterable[dict[str, Any]], file: TextIO) -> None:
    """Write the audit trail for programs, a JSON object a line."""
    import orjson

    for entry in entries:
        states = {name: orjson.Fragment(entry[name] or "null") for name in ("before", "after")}
        # The names of the columns are of a subclass of str.
        file.write(orjson.dumps(entry | states, option=orjson.OPT_NON_STR_KEYS).decode() + "\n")


def _how(entry: dict[str, Any]) -> str:
    import msgspec

    from rioni.domain.timelines.timeline import Timelines
    from rioni.domain.timelines.timeline_description import describe_change

    if entry["resource_type"] != "timeline":
        return ""
    states = (entry[name] and msgspec.json.decode(entry[name], type=Timelines) for name in ("before", "after"))
    return describe_change(str(entry["topic"]), *states)
