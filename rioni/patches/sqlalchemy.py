"""SQLAlchemy, whose pools can be subclassed only by methods without a public name.

Reason: none of its pools fits greenlets that share connections with native threads. On an upgrade, look at
`sqlalchemy.pool.impl.QueuePool`: which methods it overrides, what `_create_connection` returns, and which arguments its
method `recreate` passes on.

Versions: sqlalchemy>=2.1.9,<2.2.
"""

from typing import Any

from sqlalchemy.pool import ConnectionPoolEntry, Pool


class HookedPool(Pool):
    """A pool whose subclass decides which connections are kept."""

    def take(self) -> ConnectionPoolEntry:
        """Return a connection for one user; may block."""
        raise NotImplementedError

    def put_back(self, record: ConnectionPoolEntry) -> None:
        """Take a connection back from its user."""
        raise NotImplementedError

    def open_connection(self) -> ConnectionPoolEntry:
        """Open another connection; blocks."""
        return self._create_connection()

    def recreated_options(self) -> dict[str, Any]:
        """The arguments of a new pool with the same settings that differ from those of this one."""
        return {"_dispatch": self.dispatch, "echo": self.echo, "dialect": self._dialect}

    def _do_get(self) -> ConnectionPoolEntry:
        return self.take()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        self.put_back(record)
