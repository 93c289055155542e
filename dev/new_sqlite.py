"""Generates the script that makes a new SQLite database, equal to one that all migrations have made."""

import sqlite3
import tempfile
from pathlib import Path

from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import LATEST, NEW_SQLITE, upgrade


FIRST = "0001"


def script() -> dict[Path, str]:
    """The script, by its path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "registry.db")
        engine = create_engine(f"sqlite:///{path}")
        upgrade(engine, FIRST)
        upgrade(engine, LATEST)
        engine.dispose()
        return {NEW_SQLITE: dump(path)}


def dump(path: Path) -> str:
    """The statements that make a database like this one, an empty line after each."""
    connection = sqlite3.connect(path)
    try:
        statements = [each for each in connection.iterdump() if "sqlite_sequence" not in each]
    finally:
        connection.close()
    # Without those that begin and end the transaction.
    return "\n\n".join(statements[1:-1]) + "\n"
