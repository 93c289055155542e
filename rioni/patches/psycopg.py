"""psycopg, whose error for a wait that takes too long has no public name.

Reason: a connection whose server is unresponsive has to be closed, and only this error reports that. On an upgrade,
look at `Connection.wait`, through which all answers are awaited, and at the error that its documentation names.

Versions: psycopg[binary]>=3.3,<3.4.
"""

from typing import Any

import psycopg
from psycopg.errors import _WaitTimeout


LOOK_EVERY_S = 0.1
"""How often a waiting driver checks for interruptions; its own default."""


class DeadlineConnection(psycopg.Connection[Any]):
    """A connection that is closed if an answer takes too long; OperationalError is raised then."""

    deadline_s: float | None = None
    """Seconds for each answer; None waits without end."""

    def wait(self, gen: Any, interval: float = LOOK_EVERY_S, timeout: float | None = None) -> Any:
        """Wait for an answer; blocks."""
        if timeout is not None or self.deadline_s is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.deadline_s)
        except _WaitTimeout as ex:
            # The answer may still arrive, and must not be mistaken for that of another query.
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.deadline_s:g} s") from ex
