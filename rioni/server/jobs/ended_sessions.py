"""Gives the console the sessions that have ended: in the registry database, through the pool that waits for it."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine

from rioni.console.ended_sessions import HOLDER_CHARACTERS, SessionsUnavailable
from rioni.domain.errors import Unavailable
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.storage.sql.ended_sessions import SqlEndedSessions


T = TypeVar("T")


class StoredEndedSessions:
    """The console's port `EndedSessionStore`.

    Args:
        engine: of a migrated database; closed by its owner.
        pool: runs what blocks on the database.
    """

    def __init__(self, engine: Engine, pool: ThreadPool) -> None:
        self._store, self._pool = SqlEndedSessions(engine, HOLDER_CHARACTERS), pool

    def end(self, session_id: str, until_s: int, now_s: int) -> None:
        """Keep that a session has ended; see the port."""
        self._call(self._store.end, session_id, until_s, now_s)

    def has_ended(self, session_id: str) -> bool:
        """Whether a session has ended; see the port."""
        return self._call(self._store.has_ended, session_id)

    def _call(self, function: Callable[..., T], *args: object) -> T:
        try:
            return self._pool(function, *args)
        except Unavailable as ex:
            raise SessionsUnavailable from ex
