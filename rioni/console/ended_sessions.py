"""Ends sessions before their time: a copy of the cookie is worth nothing after the logout, at any worker or node."""

import hashlib
import time
from typing import Protocol

from rioni.console.sessions import SESSION_S, Session


HOLDER_CHARACTERS = 16
"""With which the ids of all sessions of one token begin."""


class SessionsUnavailable(Exception):
    """Which sessions have ended can't be read or written at present."""


class EndedSessionStore(Protocol):
    """Keeps which sessions have ended, for all processes.

    There is a bound. Beyond it, those who have ended the most sessions lose the oldest of theirs: nobody can push out
    the sessions of others, whose copied cookies would be good again. Ids of one holder have the same beginning, of
    `HOLDER_CHARACTERS`.

    Calls block on the database; all raise SessionsUnavailable.
    """

    def end(self, session_id: str, until_s: int, now_s: int) -> None:
        """Keep that a session has ended until it would be over anyway (seconds since the epoch)."""

    def has_ended(self, session_id: str) -> bool:
        """Whether a session has ended."""


class EndedSessions:
    """Which sessions have ended before their time.

    Args:
        store: of all processes.
    """

    def __init__(self, store: EndedSessionStore) -> None:
        self._store = store

    def end(self, session: Session) -> None:
        """End a session; nothing is kept of one without a token. Blocks on the database; raises SessionsUnavailable."""
        if session.token is not None:
            self._store.end(_id(session), session.begun_s + SESSION_S, int(time.time()))

    def has_ended(self, session: Session) -> bool:
        """Whether a session has ended. Blocks on the database, if it has a token; raises SessionsUnavailable."""
        return session.token is not None and self._store.has_ended(_id(session))


def _id(session: Session) -> str:
    """What a session is known by: its secret, which no other session has, is not stored itself; nor is its token."""
    holder = hashlib.sha256((session.token or "").encode()).hexdigest()[:HOLDER_CHARACTERS]
    return holder + hashlib.sha256(session.csrf.encode()).hexdigest()
