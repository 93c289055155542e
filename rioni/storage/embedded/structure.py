"""Compares the tables of an SQLite file with those that this release makes, and checks its pages."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeVar

from rioni.storage.sql.read_only import opened_read_only


T = TypeVar("T")

FINDINGS_MAX = 5
"""The maximum number of findings of SQLite's own check: the first ones locate the damage, further ones follow from
them."""


class TableShape(NamedTuple):
    """The parts of a table's definition that affect how it is read and written."""

    columns: dict[str, int]
    """The place of each column in the primary key, 0 for none."""
    indexes: Counter[tuple[bool, tuple[str | None, ...]]]
    """How many there are, by whether they are unique, and their columns. A rebuild may change names."""
    triggers: dict[str, str]
    """The statement of each, by name."""


def page_findings(path: Path) -> Iterator[str]:
    """Yield the findings of SQLite in the pages of an existing file, indexes and unused ones included.

    Nothing is written; blocks on the disk.

    Raises:
        sqlite3.Error: the file can't be read.
    """
    with opened_read_only(path) as connection:
        found = connection.execute(f"PRAGMA integrity_check({FINDINGS_MAX})").fetchall()
    yield from (text for (text,) in found if text != "ok")


def table_findings(path: Path, schema: str, version: int | None = None) -> Iterator[str]:
    """Yield a sentence for each table, index or trigger of an existing file that is not as this release makes it.

    Tables that this release does not know are ignored. Nothing is written; blocks on the disk.

    Args:
        path: the path of the file.
        schema: the statements that make such a file.
        version: `user_version` of such a file; None if the version is kept elsewhere.

    Raises:
        sqlite3.Error: the file can't be read.
    """
    wanted, found, found_version = _both(path, schema, _tables)
    if version is not None and found_version != version:
        if not wanted.keys() & found.keys():
            yield "it is empty, or a database of another program"
            return
        advice = (
            "It was written by a newer version of Rioni; use that version."
            if found_version > version
            else "If it was written by an older version of Rioni, use that version, or let `rioni serve` of this one "
            "bring it up to date."
        )
        yield f"its schema has the version {found_version}, needed here: {version}. {advice}"
        return
    for name, table in wanted.items():
        yield from _differences(name, table, found.get(name))


def type_findings(path: Path, schema: str) -> Iterator[str]:
    """Yield a sentence for each value of another type than its column, which SQLite stores all the same.

    NULL is ignored: the check of the pages finds it in columns that forbid it. Blocks on the disk.

    Args:
        path: the path of the file.
        schema: the statements that make such a file.

    Raises:
        sqlite3.Error: the file can't be read.
    """
    wanted, found, _ = _both(path, schema, _types)
    with opened_read_only(path) as connection:
        for table in wanted.keys() & found.keys():
            yield from _of_types(connection, table, wanted[table], found[table])


def _types(connection: sqlite3.Connection) -> dict[str, tuple[dict[str, str], list[str]]]:
    """The type of each column of a table, and the columns of its primary key."""
    found = {}
    for table in _names(connection):
        columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        types = {name: kind.lower() for _, name, kind, *_ in columns if kind in ("INTEGER", "TEXT", "BLOB")}
        found[table] = types, [name for _, name, *_, place in columns if place]
    return found


def _of_types(
    connection: sqlite3.Connection,
    table: str,
    wanted: tuple[dict[str, str], list[str]],
    found: tuple[dict[str, str], list[str]],
) -> Iterator[str]:
    types, keys = wanted
    checked = [name for name in types if name in found[0]]
    if not checked or keys != found[1]:
        return  # Anything that the table lacks is its own finding.
    wrong = " OR ".join(f"typeof(\"{name}\") NOT IN ('{types[name]}', 'null')" for name in checked)
    shown = ", ".join([*(f'quote("{name}")' for name in keys), *(f'typeof("{name}")' for name in checked)])
    rows = connection.execute(f'SELECT {shown} FROM "{table}" WHERE {wrong} LIMIT {FINDINGS_MAX}')  # noqa: S608 - our names
    for row in rows.fetchall():
        place = ", ".join(f"{name} {value}" for name, value in zip(keys, row, strict=False))
        for name, kind in zip(checked, row[len(keys) :], strict=True):
            if kind not in (types[name], "null"):
                yield f"the table {table}, row with {place}: the column {name} has {kind} instead of {types[name]}"


def unusable_tables(path: Path, schema: str, version: int) -> str:
    """Return why the tables of an existing file can't be used, as the rest of a sentence; empty if they can.

    Args:
        path: the path of the file.
        schema: the statements that make such a file.
        version: `user_version` of such a file.

    Raises:
        sqlite3.Error: the file can't be read.
    """
    wanted, found, found_version = _both(path, schema, _names)
    if found_version == 0 and found:
        return f"has tables, but no version of its schema, which is {version}"
    missing = [name for name in wanted if name not in found] if found_version == version else []
    return f"lacks {'the table' if len(missing) == 1 else 'the tables'} {', '.join(missing)}" if missing else ""


def _both(path: Path, schema: str, read: Callable[[sqlite3.Connection], T]) -> tuple[T, T, int]:
    """Read a database made from the schema, and the file; return both results and the file's `user_version`."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        wanted = read(connection)
    with opened_read_only(path) as connection:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        return wanted, read(connection), version


def _tables(connection: sqlite3.Connection) -> dict[str, TableShape]:
    return {name: _table(connection, name) for name in _names(connection)}


def _names(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in rows if not name.startswith("sqlite_")]


def _table(connection: sqlite3.Connection, table: str) -> TableShape:
    columns = {name: place for _, name, _, _, _, place in connection.execute(f'PRAGMA table_info("{table}")')}
    indexes = Counter(
        (bool(unique), tuple(column for _, _, column in connection.execute(f'PRAGMA index_info("{index}")')))
        for _, index, unique, *_ in connection.execute(f'PRAGMA index_list("{table}")').fetchall()
    )
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
    )
    return TableShape(columns, indexes, {name: " ".join(sql.split()) for name, sql in triggers})


def _differences(name: str, wanted: TableShape, found: TableShape | None) -> Iterator[str]:
    if found is None:
        yield f"the table {name} is missing"
        return
    if found.columns != wanted.columns:
        yield f"the table {name} has the columns {', '.join(found.columns)} instead of {', '.join(wanted.columns)}"
    for _, columns in wanted.indexes - found.indexes:
        yield f"the index of the table {name} by {_shown(columns)} is missing"
    for _, columns in found.indexes - wanted.indexes:
        yield f"the table {name} has an index by {_shown(columns)} that Rioni does not make"
    for trigger in wanted.triggers.keys() - found.triggers.keys():
        yield f"the trigger {trigger} of the table {name} is missing"
    for trigger, statement in found.triggers.items():
        if wanted.triggers.get(trigger) != statement:
            yield f"the table {name} has a trigger {trigger} that Rioni does not make"


def _shown(columns: tuple[str | None, ...]) -> str:
    return ", ".join(column or "an expression" for column in columns)
