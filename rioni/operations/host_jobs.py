"""Tells the broker of a data directory about jobs on its host; the broker need not run."""

import os
from collections.abc import Callable
from pathlib import Path

from rioni.commands.system.job_records import JobRecords
from rioni.config.settings import Config
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Unavailable
from rioni.domain.ports.thread_pool import direct
from rioni.domain.system.jobs import JobReport
from rioni.files.private import private_umask
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.jobs import EmbeddedJobs


HOST = Subject(name="", unrestricted=True)
"""Who reports jobs on the host: it needs no token, and is no client."""


def host_jobs(config: Config) -> Callable[[str, JobReport], None]:
    """What notes the id of a job and what it does; blocks on the disk, and raises Unavailable."""
    path = config.data / "jobs.db"
    records = JobRecords(EmbeddedJobs(path), SystemClock(), direct)

    def tell(job_id: str, report: JobReport) -> None:
        # A wrong folder is none of a broker's; the job says so itself.
        if (config.data / "registry.db").exists():
            with private_umask():
                _share(path)
                records.report(job_id, report, HOST)

    return tell


def _share(path: Path) -> None:
    """Let a file that root makes belong to the user of the broker, as its other files do."""
    owner = path.with_name("registry.db").stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    try:
        for each in (path, Path(f"{path}-lock")):
            each.touch()
            os.chown(each, owner.st_uid, owner.st_gid)
    except OSError as ex:
        raise Unavailable(f"{path} can't be used: {ex}") from ex
