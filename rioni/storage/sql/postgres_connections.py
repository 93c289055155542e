"""PostgreSQL connections with deadlines against unresponsive servers.

The server ends statements that take too long, but only while it runs. Of a server that is paused, or whose disk hangs,
the kernel goes on acknowledging what it is sent, so that neither keepalives nor time-outs of TCP notice anything.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any


GRACE_S = 10
"""By so much the client's deadline is behind the server's, whose error says more."""

FIRST_S = 20
"""For the first question of a connection."""

_STATEMENT_MS = "SELECT setting::integer FROM pg_settings WHERE name = 'statement_timeout'"

LOOK_EVERY_S = 0.1
"""How often the driver looks for interruptions while it waits; its own default."""


def connect(arguments: Sequence[Any], parameters: dict[str, Any]) -> Any:
    """Open a connection of the driver whose every wait for an answer ends `GRACE_S` after the time of a statement.

    Past that the connection is closed, and OperationalError raised.

    Args:
        arguments: of `psycopg.connect`.
        parameters: of `psycopg.connect`.
    """
    connection = _connection_class().connect(*arguments, **parameters)
    # What the URL says, or the settings of role and database, counts as well.
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
                # The answer may come yet, and must not be taken for that of another question.
                self.pgconn.finish()
                raise psycopg.OperationalError(f"no answer within {self.deadline_s:g} s") from ex

    return Connection
