"""Stores jobs in a PostgreSQL table that all nodes share, unlike the embedded file."""

from collections.abc import Collection, Sequence

import msgspec
from sqlalchemy import Column, Engine, LargeBinary, MetaData, Table, Text, delete, select
from sqlalchemy.dialects.postgresql import insert

from rioni.domain.system.jobs import Job
from rioni.storage.sql.engines import reading, writing


JOB_TABLES = MetaData()

JOBS = Table("jobs", JOB_TABLES, Column("id", Text, primary_key=True), Column("job", LargeBinary, nullable=False))

_NEW = insert(JOBS)
_PUT = _NEW.on_conflict_do_update(index_elements=[JOBS.c.id], set_={"job": _NEW.excluded.job})


class SqlJobs:
    """The port `JobStore` on PostgreSQL.

    Args:
        engine: of a migrated PostgreSQL database; closed by its owner.
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
