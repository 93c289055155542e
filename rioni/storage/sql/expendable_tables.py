"""Activity of clients and jobs: PostgreSQL tables that all nodes share, unlike the embedded files."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
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
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert

from rioni.domain.system.client_activity import ActivityKey, LastActivity
from rioni.domain.system.reports import Job
from rioni.storage.sql.engines import reading, writing


# --- Stores client activity in a PostgreSQL table that all nodes share, unlike the embedded file ---

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
"""Client activity. Names are stored as bytes: any text is allowed, and their order is the same everywhere."""

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
    # Rows being updated by another process are neither deleted nor waited for.
    .with_for_update(skip_locked=True)
)
_FORGET = delete(SIGHTINGS).where(tuple_(*SIGHTINGS.primary_key.columns).in_(_OLD))


class SqlActivity:
    """The port `Activity` on PostgreSQL.

    Args:
        engine: the engine of a migrated PostgreSQL database; closed by its owner.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, records: Mapping[ActivityKey, LastActivity]) -> None:
        """Add to the stored activity; see the port."""
        # Sorted in the same order by all processes, so they wait for each other's rows without deadlocks.
        rows = [
            {
                "deed": key.action,
                "resource": key.resource.encode(),
                "client": key.client.encode(),
                "first_ms": seen.first_ms,
                "last_ms": seen.last_ms,
                "amount": seen.amount,
            }
            for key, seen in sorted(records.items())
        ]
        with writing(self._engine, durable=False) as connection:
            connection.execute(_ADD, rows)

    def of_any(self, actions: Collection[str], resource: str) -> Mapping[ActivityKey, LastActivity]:
        """Return the activity of all clients on a resource by these actions; see the port."""
        columns = SIGHTINGS.c
        query = (
            select(columns.deed, columns.client, columns.first_ms, columns.last_ms, columns.amount)
            .where(columns.deed.in_(actions), columns.resource == resource.encode())
            .order_by(columns.client)
        )
        with reading(self._engine) as connection:
            return {
                ActivityKey(action, resource, client.decode()): LastActivity(*figures)
                for action, client, *figures in connection.execute(query)
            }

    def active_since(self, since_ms: int) -> Collection[str]:
        """Return the resources with activity since this time; see the port."""
        query = select(SIGHTINGS.c.resource).where(SIGHTINGS.c.last_ms >= since_ms).distinct()
        with reading(self._engine) as connection:
            return {resource.decode() for resource in connection.scalars(query)}

    def delete_before(self, before_ms: int) -> None:
        """Delete clients not seen since this time; see the port."""
        with writing(self._engine, durable=False) as connection:
            connection.execute(_FORGET, {"before_ms": before_ms})

    def close(self) -> None:
        """Do nothing: the connections belong to the engine."""


# --- Stores jobs in a PostgreSQL table that all nodes share, unlike the embedded file ---

JOB_TABLES = MetaData()

JOBS = Table("jobs", JOB_TABLES, Column("id", Text, primary_key=True), Column("job", LargeBinary, nullable=False))

_NEW_JOB = insert(JOBS)
_PUT = _NEW_JOB.on_conflict_do_update(index_elements=[JOBS.c.id], set_={"job": _NEW_JOB.excluded.job})


class SqlJobs:
    """The port `JobStore` on PostgreSQL.

    Args:
        engine: the engine of a migrated PostgreSQL database; closed by its owner.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self) -> Sequence[Job]:
        """All that are remembered; see the port."""
        with reading(self._engine) as connection:
            return [msgspec.json.decode(job, type=Job) for job in connection.scalars(select(JOBS.c.job))]

    def put(self, job: Job) -> None:
        """Keep a job; see the port."""
        with writing(self._engine, durable=False) as connection:
            connection.execute(_PUT, {"id": job.id, "job": msgspec.json.encode(job)})

    def remove(self, ids: Collection[str]) -> None:
        """Forget jobs; see the port."""
        with writing(self._engine, durable=False) as connection:
            connection.execute(delete(JOBS).where(JOBS.c.id.in_(ids)))
