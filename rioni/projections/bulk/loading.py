"""Loads the rows that Spark's executors have folded into the tables of a generation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from sqlalchemy import Boolean, Column, Engine, Integer, Table

from rioni.projections.bulk.executors import Target
from rioni.projections.bulk.source import Database
from rioni.projections.generations.generation import Generation
from rioni.sql.engines import libpq_url, turn


def database(engine: Engine) -> Database:
    """The location of the log, for the executors."""
    if engine.dialect.name == "sqlite":
        return Database("sqlite", str(Path(engine.url.database or "").resolve()))
    return Database("postgresql", libpq_url(engine.url))


def targets(engine: Engine, generation: Generation) -> Sequence[Target]:
    """The tables, as the executors need to know them."""
    return [
        Target(
            name,
            pa.schema([pa.field(column.name, _arrow_type(column)) for column in table.columns]),
            tuple(table.primary_key.columns.keys()),
            _copy(engine, table),
        )
        for name, table in generation.tables.items()
    ]


def _arrow_type(column: Column[Any]) -> pa.DataType:
    if isinstance(column.type, Integer):
        return pa.int64()
    return pa.bool_() if isinstance(column.type, Boolean) else pa.string()


def _copy(engine: Engine, table: Table) -> str:
    quote = engine.dialect.identifier_preparer.quote
    return f"COPY {quote(table.name)} ({', '.join(quote(column.name) for column in table.columns)}) FROM STDIN"


def load_file(engine: Engine, generation: Generation, rebuild: str, path: Path) -> None:
    """Copy the rows that a task has written into the tables, one short transaction per batch; commands are not blocked.

    How many batches are loaded is noted with each of them, so a file is loaded once, however often that is begun.

    Args:
        engine: the engine of the rebuild, on SQLite.
        generation: to load.
        rebuild: its id.
        path: the path of the file, whose name is the number of the task.
    """
    task = int(path.stem)
    with engine.connect() as connection:
        cursor: Any = connection.connection.cursor()
        cursor.execute("ATTACH ? AS part", (str(path),))
        rows = msgspec.json.encode(dict(cursor.execute("SELECT name, rows FROM part.report").fetchall())).decode()
        with turn(engine):
            cursor.execute("INSERT OR IGNORE INTO rebuild_tasks VALUES (?, ?, 0, ?)", (rebuild, task, rows))
        loaded = "SELECT batches FROM rebuild_tasks WHERE rebuild = ? AND task = ?"
        (begin,) = cursor.execute(loaded, (rebuild, task)).fetchone()
        batches = cursor.execute("SELECT name, first, last FROM part.batches ORDER BY rowid").fetchall()
        for number, (table, *bounds) in list(enumerate(batches, 1))[begin:]:
            copied = f"SELECT * FROM part.{table} WHERE rowid BETWEEN ? AND ?"  # noqa: S608 - all names are ours
            noted = "UPDATE rebuild_tasks SET batches = ? WHERE rebuild = ? AND task = ?"
            with turn(engine):
                cursor.execute("BEGIN IMMEDIATE")
                cursor.execute(f"INSERT INTO {generation.tables[table].name} {copied}", bounds)
                cursor.execute(noted, (number, rebuild, task))
                cursor.execute("COMMIT")
