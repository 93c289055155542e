"""Remembers the reports of archives and backups, and forgets the oldest of them."""

from collections.abc import Sequence

import msgspec

from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Conflict
from rioni.domain.ports.host import Clock, ThreadPool
from rioni.domain.system.reports import Job, JobReport, JobStore, newest_first, shown, superfluous
from rioni.domain.timestamps import rfc3339


class JobRecords:
    """The jobs that are remembered. Calls block on the store, and raise Unavailable."""

    def __init__(self, store: JobStore, clock: Clock, pool: ThreadPool) -> None:
        """Prepare.

        Args:
            store: keeps the jobs.
            clock: for timestamps.
            pool: runs calls that block on the store.
        """
        self._store, self._clock, self._pool = store, clock, pool

    def newest(self, kind: str | None = None) -> Sequence[Job]:
        """The jobs of a kind, or of all kinds; the last ones to report come first."""
        now_ms = self._clock.now_ms()
        found = newest_first(self._pool(self._store.all))
        return [shown(job, now_ms) for job in found if kind in (None, job.kind)]

    def report(self, job_id: str, report: JobReport, subject: Subject) -> Job:
        """Record a job's report; the first report creates the job.

        Raises:
            Conflict: another client reports a job of this id, or one of another kind has it.
        """
        now = rfc3339(self._clock.now_ms())
        jobs = {job.id: job for job in self._pool(self._store.all)}
        known = jobs.get(job_id)
        client, realm = subject.name, subject.realm or msgspec.UNSET
        if known is not None and not (
            (known.client, known.kind) == (client, report.kind) and known.realm in (msgspec.UNSET, realm)
        ):
            raise Conflict(f"A job with the id {job_id} exists already. Give each job a unique id.")
        started_at = now if known is None else known.started_at
        job = Job(
            **msgspec.structs.asdict(report),
            id=job_id,
            client=client,
            realm=realm,
            started_at=started_at,
            updated_at=now,
        )
        self._pool(self._store.put, job)
        if known is None and (forgotten := superfluous([*jobs.values(), job])):
            self._pool(self._store.remove, forgotten)
        return job
