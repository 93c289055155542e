"""Writes what all migrations together make of an empty SQLite database: `python -m tests.support.new_sqlite`."""

import sqlite3
import tempfile
from pathlib import Path

from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import LATEST, NEW_SQLITE, upgrade


FIRST = "0001"


def migrated() -> str:
    """The statements that make such a database, from a database that was migrated step by step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "registry.db")
        engine = create_engine(f"sqlite:///{path}")
        upgrade(engine, FIRST)
        upgrade(engine, LATEST)
        engine.dispose()
        return dump(path)


def dump(path: Path) -> str:
    """The statements that make a database like this one, an empty line after each."""
    connection = sqlite3.connect(path)
    try:
        statements = [each for each in connection.iterdump() if "sqlite_sequence" not in each]
    finally:
        connection.close()
    # Without those that begin and end the transaction.
    return "\n\n".join(statements[1:-1]) + "\n"


if __name__ == "__main__":
    NEW_SQLITE.write_text(migrated(), encoding="utf-8")
