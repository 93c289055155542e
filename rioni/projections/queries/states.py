"""Queries over the states of all streams."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, select

from rioni.projections.fold import decode_state
from rioni.projections.tables import STATES


def all_states(connection: Connection) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, key and state of everything that exists."""
    query = select(STATES.c.kind, STATES.c.key, STATES.c.state).where(STATES.c.state.is_not(None))
    for row in connection.execution_options(yield_per=1_000).execute(query):
        yield row.kind, row.key, decode_state(row.kind, row.state)
