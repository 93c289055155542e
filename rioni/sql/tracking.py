"""The positions of the log's followers, recorded by the tracking of the eventsourcing library."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from eventsourcing.persistence import IntegrityError, Tracking, TrackingRecorder
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from rioni.sql.log_tables import TRACKING


Begin = Callable[[], AbstractContextManager[Connection]]
"""Begins a transaction, or joins one; the connection must not be used after the block."""


class SqlTrackingRecorder(TrackingRecorder):
    """Records the last position of each follower in one row, under the follower's name.

    Args:
        reading: begins transactions that read.
        writing: begins transactions that write.
        fold: the version of the code that writes the follower's tables, which the library does not have.
    """

    def __init__(self, reading: Begin, writing: Begin, *, fold: int = 0) -> None:
        self._reading, self._writing, self._fold = reading, writing, fold

    @classmethod
    def within(cls, connection: Connection, *, fold: int = 0) -> Self:
        """Join the open transaction of a connection, so that a position is saved together with the tables."""
        return cls(lambda: nullcontext(connection), lambda: nullcontext(connection), fold=fold)

    def insert_tracking(self, tracking: Tracking) -> None:
        """Save a follower's position.

        Raises:
            IntegrityError: it was at this position, or further; or another version of the fold wrote its tables.
        """
        row = {"of": tracking.application_name, "to": tracking.notification_id, "by": self._fold}
        with self._writing() as connection:
            if connection.execute(_MOVE, row).rowcount:
                return
            if (known := connection.scalar(_SELECT_POSITION, row)) is not None:
                raise IntegrityError(f"{row['of']} is at {known} already, not only at {row['to']}")
            connection.execute(_INSERT, row)

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return a follower's position; None if none was saved yet."""
        with self._reading() as connection:
            return connection.scalar(_SELECT_POSITION, {"of": application_name})

    def reset(self, application_name: str, position: int) -> None:
        """Set a follower's position after its tables were replaced, also to an earlier one."""
        with self._writing() as connection:
            connection.execute(delete(TRACKING).where(TRACKING.c.name == application_name))
            connection.execute(_INSERT, {"of": application_name, "to": position, "by": self._fold})


# PERF: SQLAlchemy takes 0.2 ms to put a statement together, and 0.06 ms to execute one that it knows.
_NAMED = TRACKING.c.name == bindparam("of")
_MOVE = (
    update(TRACKING)
    .where(_NAMED, TRACKING.c.fold == bindparam("by"), TRACKING.c.position < bindparam("to"))
    .values(position=bindparam("to"))
)
_INSERT = insert(TRACKING).values(name=bindparam("of"), position=bindparam("to"), fold=bindparam("by"))
_SELECT_POSITION = select(TRACKING.c.position).where(_NAMED)
