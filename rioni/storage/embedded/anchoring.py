"""Writes the anchors of the embedded stores and reads their marks, cheaply when nothing has changed."""

from rioni.domain.system.installation import Anchor, Marks
from rioni.storage.embedded.anchors import Ends, read_anchor, read_ends, write_anchor
from rioni.storage.embedded.sqlite_file import SQLiteFile
from rioni.storage.sql.store_marks import ends_text, topic_mark


COORDINATION = "coordination"
"""Key of the coordination database's mark."""

OVERLAP_MS = 60_000
"""Topics that grew within this time before the last read are read again: clocks may be set back a little."""

_CHANGES = "SELECT count(*) + total(epoch) + total(revision) FROM subscriptions"


class EventAnchors:
    """Anchors an event store; its marks are the end positions of its topics."""

    def __init__(self, database: SQLiteFile) -> None:
        self._database = database
        self._since_ms: int | None = None

    def note(self, anchor: Anchor, now_ms: int, *, everything: bool) -> Marks:
        """Implement `Anchored.anchor`; blocks on the disk."""
        _write(self._database, anchor)
        since_ms = None if everything else self._since_ms
        with self._database.reading() as connection:
            ends: Ends = read_ends(connection, since_ms)
        self._since_ms = now_ms - OVERLAP_MS
        return {topic_mark(topic): ends_text(each) for topic, each in ends.items()}


class CoordinationAnchors:
    """Anchors the coordination database; its mark is a sequence number that grows with every change."""

    def __init__(self, database: SQLiteFile) -> None:
        self._database = database
        self._noted: tuple[Anchor, float] | None = None
        self._sequence = 0

    def note(self, anchor: Anchor) -> Marks:
        """Implement `Anchored.anchor`; blocks on the disk."""
        ((changes,),) = self._database.fetch(_CHANGES)
        if self._noted != (anchor, changes):
            with self._database.writing() as connection:
                self._sequence = read_anchor(connection)[1] + 1
                write_anchor(connection, anchor, self._sequence)
            self._noted = anchor, changes
        return {COORDINATION: str(self._sequence)}


def _write(database: SQLiteFile, anchor: Anchor) -> None:
    if _stored(database) != anchor:
        with database.writing() as connection:
            write_anchor(connection, anchor)


def _stored(database: SQLiteFile) -> Anchor | None:
    with database.reading() as connection:
        return read_anchor(connection)[0]
