"""Refused requests, ended sessions of the console, and cosignatures: tables that all processes share."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Delete,
    Engine,
    Index,
    Integer,
    MetaData,
    RowMapping,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
)

from rioni.domain.access.authorization import Subject, name_and_realm
from rioni.domain.audit_events import KEPT_MAX, KEPT_OF_KNOWN_MAX, Denial
from rioni.domain.transparency.checkpoint import Cosignature
from rioni.sql.log_tables import COSIGNATURES
from rioni.storage.sql.engines import reading, writing


# --- Stores records of refused requests in a table of the registry database, which all processes share ---

DENIAL_TABLES = MetaData()

DENIALS = Table(
    "denials",
    DENIAL_TABLES,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("first_at", Text, nullable=False),
    Column("last_at", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("method", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    Column("flow_id", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)


def _old(kind: ColumnElement[bool], kept: int) -> Delete:
    """Forget all records of a kind but the newest."""
    newest = select(DENIALS.c.id).where(kind).order_by(DENIALS.c.id.desc())
    return delete(DENIALS).where(kind, DENIALS.c.id <= newest.offset(kept).limit(1).scalar_subquery())


_OLD = {True: _old(DENIALS.c.actor != "", KEPT_OF_KNOWN_MAX), False: _old(DENIALS.c.actor == "", KEPT_MAX)}
"""Statements that delete superfluous records, by whether the subject is known."""


class SqlDenials:
    """The port `DenialStore`.

    Args:
        engine: the engine of a migrated database; closed by its owner.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, denials: Sequence[Denial]) -> None:
        """Add records, and forget the oldest; see the port."""
        with writing(self._engine, durable=False) as connection:
            connection.execute(insert(DENIALS), [_row(each) for each in denials])
            # PERF: each looks through all records, for some ms.
            for known in {each.actor != "" for each in denials}:
                connection.execute(_OLD[known])

    def newest(self, before: int | None, limit: int) -> Sequence[tuple[int, Denial]]:
        """Return records with their numbers, newest first; see the port."""
        query = select(DENIALS).order_by(DENIALS.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(DENIALS.c.id < before)
        with reading(self._engine) as connection:
            rows = connection.execute(query).mappings()
            return [(row["id"], _denial(row)) for row in rows]


def _row(denial: Denial) -> dict[str, Any]:
    """The columns of a record; `actor` is the key of the subject."""
    row = msgspec.structs.asdict(denial)
    realm = row.pop("realm")
    return row | {"actor": Subject(name=denial.actor, realm=realm).key}


def _denial(row: RowMapping) -> Denial:
    actor, realm = name_and_realm(row["actor"])
    members = {name: row[name] for name in Denial.__struct_fields__ if name not in ("actor", "realm")}
    return Denial(actor=actor, realm=realm, **members)


# Stores the ended sessions of the console, in a table of the registry database, which all processes share.

SESSIONS_KEPT_MAX = 100_000
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
        engine: the engine of a migrated database; closed by its owner.
        holder_characters: with which ids of one holder begin.
        kept_max: the bound.
    """

    def __init__(self, engine: Engine, holder_characters: int, kept_max: int = SESSIONS_KEPT_MAX) -> None:
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


# --- Stores the newest cosignature of each witness in a table of the registry database ---


class SqlCosignatures:
    """The port `Cosignatures`.

    Args:
        engine: the engine of a migrated database; closed by its owner.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, cosignature: Cosignature) -> None:
        """Keep a cosignature; see the port."""
        of_witness = COSIGNATURES.c.witness == cosignature.witness
        with writing(self._engine) as connection:
            known = connection.scalar(select(COSIGNATURES.c.size).where(of_witness).with_for_update())
            if known is None or known <= cosignature.size:
                connection.execute(delete(COSIGNATURES).where(of_witness))
                connection.execute(insert(COSIGNATURES), cosignature._asdict())

    def all(self) -> Sequence[Cosignature]:
        """Return the newest one of each witness; see the port."""
        with reading(self._engine) as connection:
            rows = connection.execute(select(COSIGNATURES).order_by(COSIGNATURES.c.witness)).all()
        return [Cosignature(*row) for row in rows]
