"""Client activity in a PostgreSQL table that all nodes share, unlike the embedded file."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert

from rioni.domain.subscriptions.activity import Activity, LastActivity, Sighting
from rioni.storage.embedded.activity import EmbeddedActivity
from rioni.storage.sql.engines import reading, writing


ACTIVITY_TABLES = MetaData()

SIGHTINGS = Table(
    "sightings",
    ACTIVITY_TABLES,
    Column("deed", Text, primary_key=True),
    Column("resource", LargeBinary, primary_key=True),
    Column("client", LargeBinary, primary_key=True),
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Index("ix_sightings_last_ms", "last_ms"),
)
"""Who was seen to do what. Names are their bytes: any text is one, and their order is the same everywhere."""

_NEW = insert(SIGHTINGS)
_ADD = _NEW.on_conflict_do_update(
    index_elements=SIGHTINGS.primary_key.columns,
    set_={
        "first_ms": func.least(SIGHTINGS.c.first_ms, _NEW.excluded.first_ms),
        "last_ms": func.greatest(SIGHTINGS.c.last_ms, _NEW.excluded.last_ms),
        "amount": SIGHTINGS.c.amount + _NEW.excluded.amount,
    },
)
_OLD = (
    select(*SIGHTINGS.primary_key.columns)
    .where(SIGHTINGS.c.last_ms < bindparam("before_ms"))
    # Whom somebody is just seeing again is not forgotten, and not waited for.
    .with_for_update(skip_locked=True)
)
_FORGET = delete(SIGHTINGS).where(tuple_(*SIGHTINGS.primary_key.columns).in_(_OLD))
# The machine's death may cost the last seconds, and nobody waits for the disk.
_NO_SYNC = text("SET LOCAL synchronous_commit = off")


def opened_activity(engine: Engine, path: Path) -> Activity:
    """The activity beside a log: in the database that nodes may share, or else in a file of its own."""
    return EmbeddedActivity(path) if engine.dialect.name == "sqlite" else SqlActivity(engine)


class SqlActivity:
    """The port `Activity` on PostgreSQL.

    Args:
        engine: of a database of PostgreSQL, migrated; whoever made it closes it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, sightings: Mapping[Sighting, LastActivity]) -> None:
        """Add to what is known; see the port."""
        # In the order that all processes keep: so they wait for each other's rows, and never in a circle.
        rows = [
            {
                "deed": sighting.deed,
                "resource": sighting.resource.encode(),
                "client": sighting.client.encode(),
                "first_ms": seen.first_ms,
                "last_ms": seen.last_ms,
                "amount": seen.amount,
            }
            for sighting, seen in sorted(sightings.items())
        ]
        with writing(self._engine) as connection:
            connection.execute(_NO_SYNC)
            connection.execute(_ADD, rows)

    def of(self, deed: str, resource: str) -> Mapping[str, LastActivity]:
        """What clients did with a resource; see the port."""
        columns = SIGHTINGS.c
        query = (
            select(columns.client, columns.first_ms, columns.last_ms, columns.amount)
            .where(columns.deed == deed, columns.resource == resource.encode())
            .order_by(columns.client)
        )
        with reading(self._engine) as connection:
            return {client.decode(): LastActivity(*figures) for client, *figures in connection.execute(query)}

    def forget(self, before_ms: int) -> None:
        """Forget who was not seen since; see the port."""
        with writing(self._engine) as connection:
            connection.execute(_NO_SYNC)
            connection.execute(_FORGET, {"before_ms": before_ms})

    def close(self) -> None:
        """Nothing is held: the connections are the engine's."""
