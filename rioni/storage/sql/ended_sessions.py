"""Stores which sessions of the console have ended, in a table of the registry database, which all processes share."""

from sqlalchemy import BigInteger, Column, Delete, Engine, Index, MetaData, Table, Text, delete, func, insert, select

from rioni.storage.sql.engines import reading, writing


KEPT_MAX = 100_000
"""Sessions that have ended and would last longer otherwise."""

ENDED_SESSION_TABLES = MetaData()

ENDED_SESSIONS = Table(
    "ended_sessions",
    ENDED_SESSION_TABLES,
    Column("id", Text, primary_key=True),
    Column("until_s", BigInteger, nullable=False),
    Index("ix_ended_sessions_until_s", "until_s"),
)

_ID, _UNTIL_S = ENDED_SESSIONS.c.id, ENDED_SESSIONS.c.until_s


class SqlEndedSessions:
    """The port `EndedSessionStore`.

    Args:
        engine: of a migrated database; closed by its owner.
        holder_characters: with which ids of one holder begin.
        kept_max: the bound.
    """

    def __init__(self, engine: Engine, holder_characters: int, kept_max: int = KEPT_MAX) -> None:
        self._engine, self._kept_max = engine, kept_max
        self._holder = func.substr(_ID, 1, holder_characters)

    def end(self, session_id: str, until_s: int, now_s: int) -> None:
        """Keep that a session has ended, and forget those that are over anyway; see the port."""
        with writing(self._engine) as connection:
            connection.execute(delete(ENDED_SESSIONS).where((now_s >= _UNTIL_S) | (session_id == _ID)))
            connection.execute(insert(ENDED_SESSIONS), {"id": session_id, "until_s": until_s})
            # PERF: counting 100,000 takes 2 ms.
            if (connection.scalar(select(func.count()).select_from(ENDED_SESSIONS)) or 0) > self._kept_max:
                connection.execute(self._surplus())

    def has_ended(self, session_id: str) -> bool:
        """Whether a session has ended; see the port."""
        with reading(self._engine) as connection:
            return connection.scalar(select(_ID).where(ENDED_SESSIONS.c.id == session_id)) is not None

    def _surplus(self) -> Delete:
        """The statement that forgets the oldest session of the holder with the most."""
        most = select(self._holder).group_by(self._holder).order_by(func.count().desc(), self._holder).limit(1)
        oldest = select(_ID).where(self._holder == most.scalar_subquery()).order_by(_UNTIL_S, _ID).limit(1)
        return delete(ENDED_SESSIONS).where(oldest.scalar_subquery() == _ID)
