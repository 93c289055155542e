"""Notifies the nodes of a cluster of the topics that events were appended to, by NOTIFY of PostgreSQL.

Kafka informs only readers of a topic, and reading all topics of all subscriptions takes too much effort.
"""

from collections.abc import Collection, Iterator
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, exc

from rioni.domain.errors import Unavailable
from rioni.storage.sql.engines import unpooled_connection


CHANNEL = "rioni_topics"
PAYLOAD_BYTES_MAX = 7_900
"""PostgreSQL allows 8,000."""
PAYLOADS_MAX = 20
"""The maximum number of payloads of one call; if the topics don't fit, the other nodes are notified of all topics."""
ALL = "*"
"""The payload for all topics; not a valid name of one."""


class PostgresTopicNews:
    """A separate connection, opened by the first call, for one process of each node."""

    def __init__(self, engine: Engine) -> None:
        """Connect later.

        Args:
            engine: creates the connection, which is not one of the pool.
        """
        self._engine = engine
        # The driver is an extra, and can't be imported here.
        self._errors: tuple[type[Exception], ...] = (engine.dialect.loaded_dbapi.Error, exc.SQLAlchemyError, OSError)
        self._node = str(uuid4())
        self._connection: Any = None

    def exchange(self, topics: Collection[str]) -> Collection[str] | None:
        """Notify the other nodes of appends, and receive their notifications; blocks on the server.

        Args:
            topics: the topics that this node has appended to since the last call.

        Returns:
            The topics that other nodes have appended to; None if any may be among them, as at first.

        Raises:
            Unavailable: the server can't be reached; the other nodes may not be notified of `topics`.
        """
        try:
            connected = self._connection is not None
            if not connected:
                self._connection = self._opened()
            # Notifications of this node were not sent while it was not connected.
            for payload in _payloads(topics) if connected else [ALL]:
                self._connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, f"{self._node}\n{payload}"))
            found = {topic for payload in self._payloads() for topic in payload.split("\n")}
        except self._errors as ex:
            self.close()
            unavailable = Unavailable("PostgreSQL does not report what other nodes append to.")
            # Only the operator may see hosts and roles, see `translate_errors`.
            unavailable.add_note(str(ex))
            raise unavailable from ex
        return found if connected and ALL not in found else None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> Any:
        connection = unpooled_connection(self._engine)
        connection.autocommit = True
        connection.execute(f"LISTEN {CHANNEL}")
        return connection

    def _payloads(self) -> Iterator[str]:
        """Notifications received from other nodes so far."""
        for notice in self._connection.notifies(timeout=0):
            node, _, payload = notice.payload.partition("\n")
            if node != self._node:
                yield payload


def _payloads(topics: Collection[str]) -> list[str]:
    """The topics in as many texts as needed."""
    payloads: list[list[str]] = []
    room = 0
    for topic in topics:
        size = len(topic.encode()) + 1
        if size > room:
            payloads.append([])
            room = PAYLOAD_BYTES_MAX
        payloads[-1].append(topic)
        room -= size
    return ["\n".join(each) for each in payloads] if len(payloads) <= PAYLOADS_MAX else [ALL]
