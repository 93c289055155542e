"""Writes events of a stream as they come: their JSON, JSON with cursors, lines by a template, or a table."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any, Protocol

import typer

from rioni.cli.terminal.output import Output
from rioni.cli.terminal.tables import Column, json_line, shown, value_at
from rioni.domain.texts import visible_json, visible_line


if TYPE_CHECKING:
    from rioni.client.ranges import RangePart


# --- Templates of lines: `'{metadata.eid}\t{order}'` for `--template` ---

ESCAPES = {r"\t": "\t", r"\n": "\n"}


def template(text: str) -> Callable[[Any], str]:
    r"""Return a function that fills a template with the values of a JSON value.

    Braces hold the path of a value, and may end with a format: `{price:>10.2f}`. Values that are missing are empty,
    objects and lists are JSON. `{{` is a brace, `\t` a tabulator, `\n` a line break.

    Args:
        text: the template; BadParameter if it is none.
    """
    parts = _parsed(text)

    def fill(item: Any) -> str:
        return "".join(
            literal if path is None else literal + _formatted(value_at(item, path), spec or "")
            for literal, path, spec, _ in parts
        )

    return fill


def paths_of(text: str) -> list[str]:
    """The paths in a template; BadParameter if it is none."""
    return [path for _, path, _, _ in _parsed(text) if path is not None]


def _parsed(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    for escape, char in ESCAPES.items():
        text = text.replace(escape, char)
    try:
        parts = list(Formatter().parse(text))
    except ValueError as ex:
        raise typer.BadParameter(f"{text} is no template: {ex}", param_hint="--template") from ex
    for _, path, _, conversion in parts:
        if path is not None and (not all(path.split(".")) or conversion):
            raise typer.BadParameter(
                f"{text} is no template: braces hold a path such as {{order.id}}; {{{{ is a brace",
                param_hint="--template",
            )
    return parts


def _formatted(value: Any, spec: str) -> str:
    if value is None:
        value = ""
    elif isinstance(value, bool | list | dict):
        value = json_line(value)
    try:
        return visible_line(format(value, spec))
    except ValueError as ex:
        raise typer.BadParameter(f"{value!r} does not fit the format {spec}: {ex}", param_hint="--template") from ex


CURSOR_MEMBERS = ("event_type", "partition", "offset")
TIME, EVENT, CURSOR = "time", "event", "cursor"
WIDTH_MAX = 60
"""Characters of a column to which others are aligned; longer values move the columns after them."""

ROWS_TOGETHER = 100
"""Rows of a table that are aligned together at its beginning, unless they take longer than a moment to come."""
MOMENT_S = 0.3


class EventWriter(Protocol):
    """Writes the events of pieces."""

    def __call__(self, piece: "RangePart") -> None:
        """Write them, at once but for the first rows of a table."""

    def finish(self) -> None:
        """Write the events that were not written yet."""


def event_writer(
    output: Output,
    *,
    line_template: str | None = None,
    columns: Sequence[str] = (),
    table: bool = False,
    metadata: bool | None = None,
    with_event_type: bool = False,
) -> EventWriter:
    """Return a function that prints the events of pieces at once.

    Args:
        output: of the command.
        line_template: for each event; over the members of the event, and `cursor`.
        columns: paths of members, or `time`, `partition`, `offset`, `event_type`, `event`.
        table: whether to write a table, also without columns.
        metadata: whether the member `metadata` is shown; by default but for tables.
        with_event_type: whether a table without columns tells event types apart.
    """
    asked = [bool(line_template), bool(columns) or table, output.json]
    if sum(asked) > 1:
        raise typer.BadParameter("choose one of --json, --template and --table or --columns")
    if output.json:
        return _JsonWriter(metadata=metadata is not False)
    if line_template:
        return _TemplateWriter(template(line_template))
    if columns or table:
        default = ["time", *(["event_type"] if with_event_type else []), "partition", "offset", "event"]
        return _TableWriter(list(columns) or default, metadata=metadata is True)
    return _LineWriter(metadata=metadata is not False)


def shown_paths(line_template: str | None, columns: Sequence[str]) -> list[str]:
    """The paths within events that a template and columns show.

    Raises:
        BadParameter: there is no such member of the cursor, or the template is none.
    """
    paths = [name.removeprefix(f"{EVENT}.") for name in columns if name not in _SPECIAL]
    paths += [] if line_template is None else paths_of(line_template)
    for path in paths:
        name, _, member = path.partition(".")
        if name == CURSOR and member and member not in CURSOR_MEMBERS:
            raise typer.BadParameter(f"{path} is no place of an event; cursor has {', '.join(CURSOR_MEMBERS)}")
    return [path for path in paths if path.partition(".")[0] != CURSOR]


class _Immediate:
    def finish(self) -> None:
        """Do nothing, since nothing waits to be written."""


class _TemplateWriter(_Immediate):
    """A line for each event."""

    def __init__(self, fill: Callable[[Any], str]) -> None:
        self._fill = fill

    def __call__(self, piece: "RangePart") -> None:
        _write_text(map(self._fill, _values(piece)))


class _LineWriter(_Immediate):
    """The JSON of each event, byte for byte as it was stored."""

    def __init__(self, *, metadata: bool) -> None:
        self._metadata = metadata

    def __call__(self, piece: "RangePart") -> None:
        events = [bytes(event) if self._metadata else _without_metadata(event) for event in piece.events]
        if sys.stdout.isatty():
            _write_text(visible_json(event.decode(errors="replace")) for event in events)
            return
        sys.stdout.buffer.write(b"".join(event + b"\n" for event in events))
        sys.stdout.buffer.flush()


class _JsonWriter(_Immediate):
    """An object with `cursor` and `event` for each event."""

    def __init__(self, *, metadata: bool) -> None:
        self._metadata = metadata

    def __call__(self, piece: "RangePart") -> None:
        import msgspec

        lines = []
        for index, event in enumerate(piece.events):
            shown_event = event if self._metadata else msgspec.Raw(_without_metadata(event))
            line = msgspec.json.encode({"cursor": _cursor(piece, index), "event": shown_event})
            if sys.stdout.isatty():
                line = visible_json(line.decode(errors="replace")).encode()
            lines.append(line + b"\n")
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()


class _TableWriter:
    """A row for each event; columns grow with their values."""

    def __init__(self, columns: Sequence[str], *, metadata: bool) -> None:
        self._columns: Mapping[str, Column] = {
            name: _SPECIAL.get(name, name.removeprefix(f"{EVENT}.")) for name in columns
        }
        if not metadata and EVENT in self._columns:
            self._columns = {**self._columns, EVENT: _event_alone}
        self._widths = [0] * len(self._columns)
        self._waiting: list[Sequence[str]] = []
        self._is_begun = False
        self._first_s = 0.0

    def __call__(self, piece: "RangePart") -> None:
        if piece.events and not self._waiting and not self._is_begun:
            self._first_s = time.monotonic()
            self._waiting.append(list(self._columns))
        for value in _values(piece):
            # The cells come from the events themselves: different texts look different.
            cells = ((value_at(value, column), name == TIME) for name, column in self._columns.items())
            self._waiting.append([shown(cell, shortens_times=is_time) for cell, is_time in cells])
        is_moment = len(self._waiting) < ROWS_TOGETHER and time.monotonic() < self._first_s + MOMENT_S
        if self._waiting and (self._is_begun or not is_moment):
            self.finish()

    def finish(self) -> None:
        self._is_begun = True
        for row in self._waiting:
            for number, text in enumerate(row):
                self._widths[number] = max(self._widths[number], min(len(text), WIDTH_MAX))
        _write_text(map(self._aligned, self._waiting))
        self._waiting = []

    def _aligned(self, row: Sequence[str]) -> str:
        return "  ".join(text.ljust(width) for text, width in zip(row, self._widths, strict=True)).rstrip()


def _values(piece: "RangePart") -> Sequence[dict[str, Any]]:
    """The events as objects, with their cursors."""
    import msgspec

    from rioni.client.values import number

    decode = msgspec.json.Decoder(dict[str, Any], float_hook=number).decode
    return [{**decode(event), CURSOR: _cursor(piece, index)} for index, event in enumerate(piece.events)]


def _cursor(piece: "RangePart", index: int) -> dict[str, str]:
    return {"event_type": piece.event_type, "partition": piece.partition, "offset": piece.place(index).offset}


def _without_metadata(event: Any) -> bytes:
    import msgspec

    members = msgspec.json.decode(event, type=dict[str, msgspec.Raw])
    members.pop("metadata", None)
    return msgspec.json.encode(members)


def _event_of(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in value.items() if name != CURSOR}


def _event_alone(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in value.items() if name not in (CURSOR, "metadata")}


def _time(value: Mapping[str, Any]) -> Any:
    return value_at(value, "metadata.received_at") or value_at(value, "metadata.occurred_at")


_SPECIAL: Mapping[str, Column] = {
    TIME: _time,
    "event_type": "cursor.event_type",
    "partition": "cursor.partition",
    "offset": "cursor.offset",
    EVENT: _event_of,
}


def _write_text(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
