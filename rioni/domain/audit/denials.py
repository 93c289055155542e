"""Refused requests: what is kept of them, and the port that stores it.

They are no part of the internal log: anyone can cause any number of them.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec


KEPT_MAX = 10_000
"""Records of clients that are not known that are kept, the newest ones."""
KEPT_OF_KNOWN_MAX = 100_000
"""Likewise of known subjects, whom the others can't push out: at most 150 MB, since each text of a
record has a bound in bytes."""


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were refused alike within some seconds: 401 or 403."""

    first_at: str
    """RFC 3339 in UTC with milliseconds and `Z`."""
    last_at: str
    status: int
    method: str
    path: str
    """Without the query; empty where requests to several paths are counted together."""
    actor: str
    """Empty where the client is not known."""
    realm: str = ""
    """In which the actor's name is unique; empty where there is none."""
    address: str
    """Of the client; empty where requests of several are counted together."""
    user_agent: str
    """Of the first of these requests."""
    flow_id: str
    """Likewise."""
    count: int


class DenialStore(Protocol):
    """Keeps the newest records of all processes, those of known subjects apart from the others.

    Calls block on the database; all raise Unavailable.
    """

    def add(self, denials: Sequence[Denial]) -> None:
        """Add records, and forget the oldest beyond `KEPT_MAX` and `KEPT_OF_KNOWN_MAX`."""

    def newest(self, before: int | None, limit: int) -> Sequence[tuple[int, Denial]]:
        """Records with their numbers, newest first, from before a number on."""
