"""Stores client activity in an SQLite file of its own."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from rioni.domain.subscriptions.activity import ActivityKey, LastActivity
from rioni.storage.embedded.expendable_file import ExpendableFile


class ActivityDatabase(ExpendableFile):
    """One process's connections; see `ExpendableFile`."""

    schema_version = 1
    contents = "client activity"
    # PERF: a sync every second would delay those of the events; surviving the process is enough here.
    synchronous = "NORMAL"
    schema = """
    CREATE TABLE sightings (
        deed TEXT NOT NULL,
        resource TEXT NOT NULL,
        client TEXT NOT NULL,
        first_ms INTEGER NOT NULL,
        last_ms INTEGER NOT NULL,
        amount INTEGER NOT NULL,
        PRIMARY KEY (deed, resource, client)
    ) WITHOUT ROWID;
    CREATE INDEX sightings_by_time ON sightings (last_ms);
    """


class EmbeddedActivity:
    """The port `Activity` on SQLite. A forked process must open its own."""

    def __init__(self, path: Path) -> None:
        """Open the file, creating it where it doesn't exist; blocks.

        Raises:
            RioniError: the file can't be used; the text says why.
        """
        self._database = ActivityDatabase(path)

    def add(self, records: Mapping[ActivityKey, LastActivity]) -> None:
        """Add to the stored activity; see the port."""
        with self._database.writing() as connection:
            connection.executemany(
                "INSERT INTO sightings VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms), "
                "amount = amount + excluded.amount",
                ((*key, seen.first_ms, seen.last_ms, seen.amount) for key, seen in records.items()),
            )

    def of(self, action: str, resource: str) -> Mapping[str, LastActivity]:
        """Return the clients that acted on a resource, with their activity; see the port."""
        rows = self._database.fetch(
            "SELECT client, first_ms, last_ms, amount FROM sightings WHERE deed = ? AND resource = ? ORDER BY client",
            (action, resource),
        )
        return {client: LastActivity(*figures) for client, *figures in rows}

    def of_any(self, actions: Collection[str], resource: str) -> Mapping[ActivityKey, LastActivity]:
        """Return what any client did with a resource by these actions; see the port."""
        rows = self._database.fetch(
            "SELECT deed, resource, client, first_ms, last_ms, amount FROM sightings "
            "WHERE deed IN (SELECT value FROM json_each(?)) AND resource = ?",
            (json.dumps([*actions]), resource),
        )
        return {ActivityKey(*row[:3]): LastActivity(*row[3:]) for row in rows}

    def active_since(self, since_ms: int) -> Collection[str]:
        """Return the resources with activity since this time; see the port. PERF: 20 ms for 30,000 clients."""
        rows = self._database.fetch("SELECT resource FROM sightings WHERE last_ms >= ?", (since_ms,))
        return {resource for (resource,) in rows}

    def delete_before(self, before_ms: int) -> None:
        """Delete clients not seen since this time; see the port."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM sightings WHERE last_ms < ?", (before_ms,))

    def close(self) -> None:
        """Close the file."""
        self._database.close()
