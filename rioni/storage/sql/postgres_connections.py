"""Opens PostgreSQL connections with deadlines against unresponsive servers.

The server ends statements that take too long, but only while it runs. When the server is paused, or its disk hangs, its
kernel keeps acknowledging what it receives, so neither keepalives nor TCP timeouts detect it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any


GRACE_S = 10
"""How much longer the client's deadline is than the server's, whose error is more specific."""

FIRST_S = 20
"""Deadline of the first query of a connection."""

_STATEMENT_MS = "SELECT setting::integer FROM pg_settings WHERE name = 'statement_timeout'"

LOOK_EVERY_S = 0.1
"""How often a waiting driver checks for interruptions; its own default."""


def connect(arguments: Sequence[Any], parameters: dict[str, Any]) -> Any:
    """Open a driver connection whose every wait for an answer ends `GRACE_S` after the statement timeout.

    After that the connection is closed, and OperationalError raised.

    Args:
        arguments: of `psycopg.connect`.
        parameters: of `psycopg.connect`.
    """
    connection = _connection_class().connect(*arguments, **parameters)
    # The timeout may come from the URL, or from the settings of the role or the database.
    connection.deadline_s = FIRST_S
    connection.autocommit = True
    ((statement_ms,),) = connection.execute(_STATEMENT_MS).fetchall()
    connection.autocommit = False
    connection.deadline_s = statement_ms / 1_000 + GRACE_S if statement_ms else None
    return connection


@cache
def _connection_class() -> Any:
    import psycopg  # noqa: PLC0415 - an extra

    class Connection(psycopg.Connection[Any]):
        deadline_s: float | None = None

        def wait(self, gen: Any, interval: float = LOOK_EVERY_S, timeout: float | None = None) -> Any:
            if timeout is not None or self.deadline_s is None:
                return super().wait(gen, interval, timeout)
            try:
                return super().wait(gen, interval, self.deadline_s)
            except psycopg.errors._WaitTimeout as ex:  # noqa: SLF001 - what `wait` is documented to raise
                # The answer may still arrive, and must not be mistaken for that of another query.
                self.pgconn.finish()
                raise psycopg.OperationalError(f"no answer within {self.deadline_s:g} s") from ex

    return Connection
