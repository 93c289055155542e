"""Stores which sessions of the console have ended, in a table of the registry database, which all processes share."""

from sqlalchemy import BigInteger, Column, Delete, Engine, Index, MetaData, Table, Text, delete, insert, select

from rioni.storage.sql.engines import reading, writing


KEPT_MAX = 100_000
"""Sessions that have ended and would last longer otherwise; of more, those that would last longest are kept."""

ENDED_SESSION_TABLES = MetaData()

ENDED_SESSIONS = Table(
    "ended_sessions",
    ENDED_SESSION_TABLES,
    Column("id", Text, primary_key=True),
    Column("until_s", BigInteger, nullable=False),
    Index("ix_ended_sessions_until_s", "until_s"),
)

_ID, _UNTIL_S = ENDED_SESSIONS.c.id, ENDED_SESSIONS.c.until_s


def surplus(kept: int) -> Delete:
    """The statement that forgets all sessions but a number of those that would last longest."""
    newest = select(_UNTIL_S).order_by(_UNTIL_S.desc())
    return delete(ENDED_SESSIONS).where(newest.offset(kept).limit(1).scalar_subquery() >= _UNTIL_S)


_SURPLUS = surplus(KEPT_MAX)


class SqlEndedSessions:
    """The port `EndedSessionStore`.

    Args:
        engine: of a migrated database; closed by its owner.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def end(self, session_id: str, until_s: int, now_s: int) -> None:
        """Keep that a session has ended, and forget those that are over anyway; see the port."""
        with writing(self._engine) as connection:
            connection.execute(delete(ENDED_SESSIONS).where((now_s >= _UNTIL_S) | (session_id == _ID)))
            connection.execute(insert(ENDED_SESSIONS), {"id": session_id, "until_s": until_s})
            connection.execute(_SURPLUS)

    def has_ended(self, session_id: str) -> bool:
        """Whether a session has ended; see the port."""
        with reading(self._engine) as connection:
            return connection.scalar(select(_ID).where(ENDED_SESSIONS.c.id == session_id)) is not None
