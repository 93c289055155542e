"""Reports of processes: of jobs outside the broker, such as archives and backups, and of its workers."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from rioni.domain.timestamps import parsed_ms


# --- Reports of commands that run outside the broker, archives and backups, and the port that stores them ---
#
# It is no part of the internal log: it changes every few seconds, and may be lost.

ARCHIVE, BACKUP = "archive", "backup"
KINDS = (ARCHIVE, BACKUP)
RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"
STATES = (RUNNING, DONE, FAILED)
"""The states that jobs report."""

HEARTBEAT_S = 20
"""The maximum time between two reports of a running job."""
SILENT_S = 90
"""A job without a report for this long was interrupted."""

KEPT_MAX = 100
"""How many jobs of a kind are remembered, the last ones to report."""
KEPT_PER_CLIENT_MAX = 20
"""How many jobs of one client are remembered per kind, so that none displaces those of the others."""

NAME_CHARACTERS_MAX, DETAIL_CHARACTERS_MAX = 500, 1_000


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a job about itself."""

    kind: str
    name: str
    """The target that it writes to."""
    state: str
    phase: str = ""
    done: int = 0
    total: int = 0
    """How much of the phase is done, and its total."""
    detail: str = ""
    """The result, or the reason of a failure."""


class Job(JobReport, frozen=True, kw_only=True):
    """A job as it is remembered."""

    id: str
    client: str
    """The client that reports it; empty for commands on the host of the broker."""
    realm: str | msgspec.UnsetType = msgspec.UNSET
    """The realm in which the client's name is unique; absent without one, and for jobs of releases before 0.1.1."""
    started_at: str
    """RFC 3339 in UTC with milliseconds and `Z`."""
    updated_at: str


class JobStore(Protocol):
    """Keeps jobs, for all processes. Calls block; all raise Unavailable."""

    def all(self) -> Sequence[Job]:
        """All that are remembered, in any order."""

    def put(self, job: Job) -> None:
        """Keep a job, replacing the one with the same id."""

    def remove(self, ids: Collection[str]) -> None:
        """Forget jobs; unknown ids are ignored."""


def shown(job: Job, now_ms: int) -> Job:
    """A job as it is now: interrupted, if its last report is too old."""
    updated_ms = parsed_ms(job.updated_at) or 0
    if job.state == RUNNING and now_ms - updated_ms > 1_000 * SILENT_S:
        return msgspec.structs.replace(job, state=INTERRUPTED)
    return job


def newest_first(jobs: Collection[Job]) -> list[Job]:
    """Jobs in the order of their last reports, the newest first."""
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


# The report of a worker about itself to the others, so that each can show all of them (reference operations#nodes).

EVERY_S = 10
EXPIRED_S = 30
"""A worker without a report for this long is not shown: it hangs, or can't reach the others."""


class WorkerReport(msgspec.Struct, frozen=True):
    """The state of a worker process at a time."""

    node: str
    """The id of the run of the node that it belongs to."""
    host: str
    port: int
    version: str
    workers: int
    """How many workers the node is to have."""
    number: int
    """Among the workers of the node."""
    pid: int
    started_ms: int
    reported_ms: int
    log_position: int
    """The last entry of the internal log that it knows."""
    connections: int
    streams: int
    requests_per_s: float


def encoded(report: WorkerReport) -> bytes:
    """Encode a report for the other workers."""
    return msgspec.json.encode(report)


def current(told: Mapping[str, bytes], now_ms: int) -> Sequence[Sequence[WorkerReport]]:
    """The workers of each node by number, the nodes by host name and port.

    Args:
        told: the last report of each living worker. Reports of other versions of the broker that this one does not
            understand are left out.
        now_ms: the time; expired reports are left out.
    """
    nodes: defaultdict[str, list[WorkerReport]] = defaultdict(list)
    for each in told.values():
        with suppress(msgspec.DecodeError):
            report = msgspec.json.decode(each, type=WorkerReport)
            if report.reported_ms >= now_ms - 1_000 * EXPIRED_S:
                nodes[report.node].append(report)
    for workers in nodes.values():
        workers.sort(key=lambda each: (each.number, each.started_ms))
    return sorted(nodes.values(), key=lambda workers: (workers[0].host, workers[0].port, workers[0].node))
