"""Output of commands: tables for people, JSON lines for programs, questions, and progress.

With `--json` each line of the output is one JSON value: a list has a line for each item, anything else is one line.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rioni.cli.terminal.streams import CannotWrite, created
from rioni.cli.terminal.tables import Column, fit, table_of, value_at
from rioni.domain.errors import Invalid, RioniError
from rioni.domain.texts import ascii_json, visible, visible_json


if TYPE_CHECKING:
    from rich.console import Console


COLUMNS_MAX = 1_000


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Write a text to standard output or error at once, with nothing in it that controls a terminal."""
    stream = sys.stderr if err else sys.stdout
    stream.write(visible(text) + end)
    stream.flush()


def write_json(text: str, file: TextIO | None = None) -> None:
    """Write a line of JSON to a file, or to standard output, as it stays JSON in the encoding and on a terminal."""
    file = sys.stdout if file is None else file
    text = visible_json(text)
    try:
        text.encode(file.encoding or "utf-8")
    except UnicodeEncodeError:
        text = ascii_json(text)
    file.write(text + "\n")


@dataclass
class Output:
    """The output of a command.

    Values are JSON values, or structs of the client.

    Args:
        json: whether it is for programs.
    """

    json: bool = False
    nothing_found: bool = field(default=False, init=False)
    """Whether the command found nothing that it could show."""

    def items(self, items: Iterable[Any], columns: Mapping[str, Column]) -> None:
        """Write a list: a line of JSON for each item, or a table.

        Args:
            items: read as they are written, if the output is JSON.
            columns: of the table; see `table_of`.
        """
        if self.json:
            self.nothing_found = True
            for item in items:
                self.nothing_found = False
                self._json(item)
            return
        table = table_of(map(_plain, items), columns)
        if table.row_count:
            console_on(sys.stdout).print(table)
        else:
            self.nothing_found = True
            self.note("None found.")

    def first(self, items: Iterable[Any], limit: int | None, columns: Mapping[str, Column], advice: str) -> None:
        """Write the first items of a list, as `items` does, and note whether there are more.

        Args:
            items: one more than the limit shows that.
            limit: how many are written; None for all.
            columns: of the table.
            advice: how to see more, such as "`--all` shows them."
        """
        left = iter(items)
        self.items(islice(left, limit), columns)
        if next(left, None) is not None:
            self.note(f"There are more than these {limit}: {advice}")

    def note_left_out(self, shown: int, total: int, what: str) -> None:
        """Note that a list has only some of the things that there are, if it has."""
        if total > shown:
            self.note(f"These are {shown:,} of {total:,} {what}: `--limit` shows more.")

    def item(self, value: Any, columns: Mapping[str, Column] | None = None) -> None:
        """Write one thing: a line of JSON, or a line for each member.

        Args:
            value: an object.
            columns: what people see; by default each member.
        """
        if self.json:
            self._json(value)
            return
        plain = _plain(value)
        rows = [{"name": name, "value": value} for name, value in plain.items()]
        if columns is not None:
            rows = [{"name": name, "value": value_at(plain, column)} for name, column in columns.items()]
        table = table_of(rows, {"": "name", " ": "value"})
        table.show_header = False
        console_on(sys.stdout).print(table)

    def line(self, value: Any, text: str) -> None:
        """Write one thing as a line: of JSON, or this text; at once, also to a program."""
        if self.json:
            self._json(value)
        else:
            say(text)
        sys.stdout.flush()

    def remark(self, text: str) -> None:
        """Print a remark to people: on stderr if stdout is for programs."""
        say(text, err=self.json)

    def note(self, text: str) -> None:
        """Say something to people that is not part of the output, on stderr."""
        say(text, err=True)

    def _json(self, value: Any) -> None:
        from rioni.client.values import encode

        write_json(encode(value).decode())


class NotConfirmed(RioniError):
    """The user does not want it."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask whether to go on, on a terminal.

    Args:
        question: what will happen, such as `Delete the event type orders?`
        yes: the option `--yes`, after which nothing is asked.

    Raises:
        NotConfirmed: the answer was no.
        Invalid: there is no terminal to ask on.
    """
    if not yes and _answer(question, "[y/N]").lower() not in {"y", "yes"}:
        raise NotConfirmed("Nothing was changed.")


def confirm_name(what: str, name: str) -> None:
    """Ask for the name of what will be lost, on a terminal.

    Args:
        what: the consequence, such as `All events of orders will be deleted.`
        name: the text that has to be typed.

    Raises:
        NotConfirmed: another text was typed.
        Invalid: there is no terminal to ask on.
    """
    if _answer(what, "Type its name to go on") != name:
        raise NotConfirmed("That is not its name; nothing was changed.")


def _answer(question: str, choice: str) -> str:
    """Return a person's answer; asks on stderr, as a prompt of typer would write to stdout, too."""
    if not sys.stdin.isatty():
        raise Invalid(f"{question} There is no terminal to ask on: use --yes.")
    say(f"{question} {choice}: ", err=True, end="")
    return sys.stdin.readline().strip()


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value, builtin_types=(Decimal,))


def console_on(file: TextIO) -> "Console":
    """Return a console that writes tables and figures to a file."""
    from rich.console import Console
    from rich.table import Table

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            # The group of all commands handles this error for all of them.
            raise BrokenPipeError

        def print(self, *objects: Any, **options: Any) -> None:
            for each in objects:
                if isinstance(each, Table):
                    self.width = max(self.width, fit(each, self.width))
            texts = [visible(each) if isinstance(each, str) else each for each in objects]
            super().print(*texts, **options)

    # Output to a file or program is not folded to the width of a screen.
    width = None if file.isatty() else COLUMNS_MAX
    return PipedConsole(file=file, width=width, highlight=False, markup=False)


def as_sentence(text: str) -> str:
    """A text with the mark that ends a sentence."""
    return text if text.endswith((".", "?")) else f"{text}."


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of a job in phases, on stderr if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # Output goes above the bars, unless it is meant for a file.
    bars = Progress(
        console=console,
        redirect_stdout=sys.stdout.isatty(),
        disable=not sys.stderr.isatty(),
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
        # Without bars, for example if the job can't begin, stopping would leave an empty line.
        if tasks:
            bars.stop()


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that the user names; a new one has the mode that the umask gives.

    Raises:
        CannotWrite: the text gives the reason.
    """
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as ex:
        raise CannotWrite(f"{path} can't be written: {ex.strerror}.") from ex


@contextmanager
def opened(path: Path | None) -> Iterator[TextIO]:
    """The file that the user names, or standard output.

    Raises:
        CannotWrite: the text gives the reason.
    """
    if path is None:
        yield sys.stdout
        return
    with created(path) as file:
        yield file


# --- Shows on a terminal how far a command is, in one line of stderr that is rewritten ---

EVERY_S = 0.2


class Meter:
    """One line about the present state; nothing if stderr is not a terminal.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._shown_s = 0.0
        self._is_shown = False
        self._is_terminal = sys.stderr.isatty()

    def show(self, text: Callable[[], str]) -> None:
        """Write the line, unless that was done a moment ago."""
        if not self._is_terminal or self._clock() - self._shown_s < EVERY_S:
            return
        self._shown_s = self._clock()
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[K{text()[: width - 1]}")
        sys.stderr.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Make room for other output."""
        if self._is_shown:
            clear_line()
            self._is_shown = False

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begun_s

    def rate(self, count: int) -> str:
        """The rate per second at which `count` was reached since the beginning."""
        return f"{count / max(self.seconds, 0.001):,.0f}/s"


def clear_line() -> None:
    """Remove the output of a meter, if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextmanager
def meter() -> Iterator[Meter]:
    """A meter whose line is removed at the end."""
    made = Meter()
    try:
        yield made
    finally:
        made.clear()
