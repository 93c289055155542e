"""Refused requests: their records, and the port that stores them.

They are no part of the internal log: anyone can cause any number of them.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec


KEPT_MAX = 10_000
"""Records of clients that are not known that are kept, the newest ones."""
KEPT_OF_KNOWN_MAX = 100_000
"""How many records of known subjects are kept; unknown clients can't push these out. They take at most 150 MB, since
each text of a record has a bound in bytes."""


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were refused alike within some seconds: 401 or 403."""

    first_at: str
    """RFC 3339 in UTC with milliseconds and `Z`."""
    last_at: str
    status: int
    method: str
    path: str
    """The path without the query; empty if requests to several paths are counted together."""
    actor: str
    """The name of the client's subject; empty if the client is not known."""
    realm: str = ""
    """The realm in which the actor's name is unique; empty if there is none."""
    address: str
    """The client's address; empty if requests from several addresses are counted together."""
    user_agent: str
    """The user agent of the first of these requests."""
    flow_id: str
    """The flow id of the first of these requests."""
    count: int


class DenialStore(Protocol):
    """Keeps the newest records of all processes, those of known subjects apart from the others.

    Calls block on the database; all raise Unavailable.
    """

    def add(self, denials: Sequence[Denial]) -> None:
        """Add records, and forget the oldest beyond `KEPT_MAX` and `KEPT_OF_KNOWN_MAX`."""

    def newest(self, before: int | None, limit: int) -> Sequence[tuple[int, Denial]]:
        """Records with their numbers, newest first, from before a number on."""
