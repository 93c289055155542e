"""Tables for people: columns from JSON, numbers to the right, times to read, nothing that controls a terminal."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rioni.domain.texts import visible, visible_json, visible_line


if TYPE_CHECKING:
    from rich.table import Table

Column = str | Callable[[Any], Any]
"""The source of a column's values: a path such as `statistics.read_parallelism`, or a function of the item."""

GAP = 2
"""Spaces between two columns."""
_WORD = re.compile(r"[\w.,:/@+-]{1,300}")
"""Values that are never broken: names, ids, offsets, numbers, times."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")


def plain_table(*headings: str) -> "Table":
    """A table without lines, in which nothing controls a terminal."""
    from rich.table import Table

    class VisibleTable(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*(visible_line(each) if isinstance(each, str) else each for each in cells), **options)

    table = VisibleTable(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def fit(table: "Table", width: int) -> int:
    """Fold the columns of a table into a width, but break no name or id; return the width that it has then.

    If the names alone are wider, so is the table: the terminal shows the rest of a line below it.
    """
    from rich.cells import cell_len

    texts = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    widths = [max(map(cell_len, column)) for column in texts]
    least = [max((cell_len(word) for text in column for word in _WORD.findall(text)), default=1) for column in texts]
    gaps = GAP * (len(widths) - 1)
    while sum(widths) + gaps > width:
        spare = [number for number, each in enumerate(widths) if each > least[number]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    for column, each in zip(table.columns, widths, strict=True):
        column.width = each
    return sum(widths) + gaps


def table_of(items: Iterable[Any], columns: Mapping[str, Column]) -> "Table":
    """A table with a row for each item.

    Args:
        items: JSON values.
        columns: by heading.
    """
    table = plain_table(*columns)
    rows = [[value_at(item, column) for column in columns.values()] for item in items]
    for number, column in enumerate(table.columns):
        values = [row[number] for row in rows if row[number] is not None]
        if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            column.justify = "right"
    for row in rows:
        table.add_row(*map(shown, row))
    return table


def client_of(item: Mapping[str, Any]) -> str:
    """A column with the name of a client and, if it has one, the realm that tells it from its namesakes."""
    return _of_realm(item["client"], item)


def actor_of(item: Mapping[str, Any]) -> str:
    """A column with the name of an actor and, if it has one, the realm that tells it from its namesakes."""
    return _of_realm(item["actor"], item)


def _of_realm(name: str, item: Mapping[str, Any]) -> str:
    return f"{name} ({item['realm']})" if item.get("realm") else name


def value_at(item: Any, column: Column) -> Any:
    """The value of a column; None if the item has none.

    A path has names of members, and numbers in lists, with dots between them.
    """
    if not isinstance(column, str):
        return column(item)
    for name in column.split("."):
        if isinstance(item, Mapping) and name in item:
            item = item[name]
        elif isinstance(item, list | tuple) and name.isdecimal() and int(name) < len(item):
            item = item[int(name)]
        else:
            return None
    return item


def shown(value: Any, *, shortens_times: bool = True) -> str:
    """A JSON value for people: times of the broker have no fractions there."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | Decimal):
        return f"{value:,}"
    if isinstance(value, list | tuple) and _is_evident(value):
        return ", ".join(shown(each, shortens_times=shortens_times) for each in value)
    if not isinstance(value, str):
        value = json_line(value)
    return visible_line(_TIME.sub(r"\1 \2\3", value) if shortens_times and _TIME.fullmatch(value) else value)


def _is_evident(values: Sequence[Any]) -> bool:
    """Whether values with commas between them can't be taken for other values."""
    return all(isinstance(each, str) and each.strip() and "," not in each for each in values) or all(
        isinstance(each, int | float | Decimal) for each in values
    )


def json_line(value: Any) -> str:
    """JSON in one line, with spaces; numbers keep their digits."""
    import msgspec

    from rioni.client.values import encode

    return msgspec.json.format(encode(value), indent=0).decode()


def indented(text: str) -> str:
    """JSON in several lines, without what controls a terminal; other texts as they are, and JSON that would change."""
    from rioni.cli.terminal.json_and_yaml import json_values

    try:
        (document,) = json_values(text)
        return visible_json(json.dumps(document.value, indent=2, ensure_ascii=False))
    except ValueError:
        return visible(text)
