"""What commands beside the broker tell of themselves, archives and backups, and the port that stores it.

It is no part of the internal log: it changes every few seconds, and may be lost.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from rioni.domain.timestamps import parsed_ms


ARCHIVE, BACKUP = "archive", "backup"
KINDS = (ARCHIVE, BACKUP)
RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"
STATES = (RUNNING, DONE, FAILED)
"""What jobs tell of themselves."""

HEARTBEAT_S = 20
"""A job that runs tells something at least so often."""
SILENT_S = 90
"""A job that has told nothing for so long was interrupted."""

KEPT_MAX = 100
"""Jobs of a kind that are remembered, those that have told something last."""
KEPT_PER_CLIENT_MAX = 20
"""Likewise of one client, so that none displaces those of the others."""

NAME_CHARACTERS_MAX, DETAIL_CHARACTERS_MAX = 500, 1_000
COUNT_MAX = 2**53


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a job tells of itself."""

    kind: str
    name: str
    """What it writes to."""
    state: str
    phase: str = ""
    done: int = 0
    total: int = 0
    """What the phase has done, and what it has to do."""
    detail: str = ""
    """The result, or what is wrong."""


class Job(JobReport, frozen=True, kw_only=True):
    """A job as it is remembered."""

    id: str
    client: str
    """Who reports it; empty for commands on the host of the broker."""
    realm: str | msgspec.UnsetType = msgspec.UNSET
    """In which the client's name is unique; absent where there is none, and for jobs of releases before 0.1.1."""
    started_at: str
    """RFC 3339 in UTC with milliseconds and `Z`."""
    updated_at: str


class JobStore(Protocol):
    """Keeps jobs, for all processes. Calls block; all raise Unavailable."""

    def all(self) -> Sequence[Job]:
        """All that are remembered, in any order."""

    def put(self, job: Job) -> None:
        """Keep a job in place of the one with the same id."""

    def remove(self, ids: Collection[str]) -> None:
        """Forget jobs; unknown ids are ignored."""


def shown(job: Job, now_ms: int) -> Job:
    """A job as it is now: interrupted, if it has told nothing for too long."""
    updated_ms = parsed_ms(job.updated_at) or 0
    if job.state == RUNNING and now_ms - updated_ms > 1_000 * SILENT_S:
        return msgspec.structs.replace(job, state=INTERRUPTED)
    return job


def newest_first(jobs: Collection[Job]) -> list[Job]:
    """Jobs in the order in which they have told something last."""
    return sorted(jobs, key=lambda job: (job.updated_at, job.id), reverse=True)


def superfluous(jobs: Collection[Job]) -> list[str]:
    """The ids of those jobs that are no longer remembered."""
    found: list[str] = []
    kept: dict[tuple[str, ...], int] = {}
    for job in newest_first(jobs):
        of_kind, of_client = (job.kind,), (job.kind, job.client, str(job.realm or ""))
        if kept.get(of_kind, 0) >= KEPT_MAX or kept.get(of_client, 0) >= KEPT_PER_CLIENT_MAX:
            found.append(job.id)
            continue
        for key in (of_kind, of_client):
            kept[key] = kept.get(key, 0) + 1
    return found
