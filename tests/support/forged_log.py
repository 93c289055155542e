"""A copy of a registry's database, whose log a forger rewrites: with the code of the broker, and without its key."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rioni.domain.hash_chain import GENESIS, link
from rioni.sql.log_tables import LOG


COLUMNS = tuple(LOG.columns.keys())
Rows = list[list[Any]]
Head = tuple[Any, ...]
"""The columns of the table `head`."""

_UNIQUE = "CONSTRAINT uq_log_stream_version UNIQUE (stream, version)"


class ForgedLog:
    """Rewrites the tables `log`, `head` and `log_tiles`. The constraints of the log are gone: a forger removes them."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._rows: Rows = [list(each) for each in self._connection.execute("SELECT * FROM log ORDER BY position")]
        (self.head,) = self._connection.execute("SELECT * FROM head").fetchall()
        self._without_constraints()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @property
    def rows(self) -> Rows:
        """The entries as they were written; a copy."""
        return [list(each) for each in self._rows]

    def write(self, rows: Sequence[Sequence[Any]], heads: Sequence[Head] | None = None) -> None:
        """Replace all entries, and the head by the last of them, or by these rows."""
        if heads is None:
            last = (rows[-1][0], rows[-1][-1]) if rows else (0, GENESIS)
            heads = [(self.head[0], *last, self.head[3])]
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        run("DELETE FROM log")
        run("DELETE FROM head")
        marks = ", ".join("?" * len(COLUMNS))
        self._connection.executemany(f"INSERT INTO log VALUES ({marks})", rows)
        self._connection.executemany("INSERT INTO head VALUES (?, ?, ?, ?)", heads)
        run("COMMIT")

    def set(self, position: int, column: str, value: object) -> None:
        """Change one field; bytes in a column of text become text, even if they are not valid UTF-8."""
        text = isinstance(value, bytes) and column not in {"data", "hash"}
        mark = "CAST(? AS TEXT)" if text else "?"
        self._connection.execute(f"UPDATE log SET {column} = {mark} WHERE position = ?", (value, position))

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run any statement."""
        self._connection.execute(statement, values)

    def restore(self) -> None:
        """Undo all changes of the log and its head."""
        self.write(self._rows, [self.head])

    def _without_constraints(self) -> None:
        run = self._connection.execute
        ((definition,),) = run("SELECT sql FROM sqlite_master WHERE name = 'log'").fetchall()
        assert _UNIQUE in definition
        lines = [line.strip().rstrip(",") for line in definition.splitlines() if _UNIQUE not in line]
        run("DROP TABLE log")
        run(lines[0] + ", ".join(line for line in lines[1:-1] if line) + lines[-1])
        self.restore()


def rechained(rows: Rows) -> Rows:
    """The entries with positions without gaps, and with the hash chain computed again."""
    last = GENESIS
    for position, row in enumerate(rows, 1):
        row[0] = position
        row[-1] = last = link(last, tuple(row[:-1]))
    return rows


Change = Callable[[Rows], Rows]


def structural_changes(count: int) -> dict[str, Change]:
    """Every entry removed, repeated, moved; every end cut off: by their names."""
    changes: dict[str, Change] = {}
    for at in range(count):
        changes[f"{at + 1} removed"] = lambda rows, at=at: rows[:at] + rows[at + 1 :]
        changes[f"{at + 1} repeated"] = lambda rows, at=at: [*rows[: at + 1], list(rows[at]), *rows[at + 1 :]]
        changes[f"{at + 1} repeated at the end"] = lambda rows, at=at: [*rows, list(rows[at])]
        changes[f"{at} left"] = lambda rows, at=at: rows[:at]
        changes[f"{at} cut off at the beginning"] = lambda rows, at=at: rows[at:]
        if at:
            changes[f"{at} and {at + 1} exchanged"] = lambda rows, at=at: [
                *rows[: at - 1],
                list(rows[at]),
                list(rows[at - 1]),
                *rows[at + 1 :],
            ]
    del changes["0 cut off at the beginning"]
    return changes
