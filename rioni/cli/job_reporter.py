"""Reports the progress of a job to a broker, from a separate thread: the job never waits for it, nor fails with it."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self
from uuid import uuid4

import msgspec

from rioni.domain.errors import RioniError
from rioni.domain.system.reports import (
    DETAIL_CHARACTERS_MAX,
    DONE,
    FAILED,
    HEARTBEAT_S,
    NAME_CHARACTERS_MAX,
    RUNNING,
    JobReport,
)


EVERY_S = 2.0
"""Seconds between two reports of changes."""
END_S = 5.0
"""Seconds that the end of a job may wait until it is reported."""

Tell = Callable[[str, JobReport], object]
"""Reports the id of a job and what it does; may block, and raises RioniError."""

_LOG = logging.getLogger("rioni.jobs")


class JobReporter:
    """A job, as a context manager: it ends with the block, and has failed if that raises.

    Args:
        tell: called from the thread.
        kind: of the job.
        name: what it writes to.
    """

    def __init__(self, tell: Tell, kind: str, name: str) -> None:
        self._tell, self._id = tell, str(uuid4())
        self._report = JobReport(kind=kind, name=name[:NAME_CHARACTERS_MAX], state=RUNNING)
        self._told, self._told_at_s, self._failing = self._report, float("-inf"), False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="job-reporter")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, ex: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if ex is None:
            self._change(state=DONE)
        else:
            self._change(state=FAILED, detail=str(ex) or type(ex).__name__)
        self._ended.set()
        self._thread.join(END_S)

    def progress(self, phase: str, done: int, total: int) -> None:
        """Note how far the job is; never blocks."""
        self._change(phase=phase[:NAME_CHARACTERS_MAX], done=done, total=max(done, total))

    def note(self, detail: str) -> None:
        """Note the result so far, or the error; never blocks."""
        self._change(detail=detail)

    def _change(self, **values: object) -> None:
        changed = msgspec.structs.replace(self._report, **values)
        # The thread sees one report or the other.
        self._report = msgspec.structs.replace(changed, detail=changed.detail[:DETAIL_CHARACTERS_MAX])

    def _run(self) -> None:
        ended = False
        while not ended:
            self._tell_if_due(ended=False)
            ended = self._ended.wait(EVERY_S)
        self._tell_if_due(ended=True)

    def _tell_if_due(self, *, ended: bool) -> None:
        report = self._report
        changed = report != self._told and not self._failing
        if not (changed or ended or time.monotonic() - self._told_at_s >= HEARTBEAT_S):
            return
        self._told, self._told_at_s = report, time.monotonic()
        try:
            self._tell(self._id, report)
            self._failing = False
        except RioniError as ex:
            if not self._failing:
                _LOG.warning("The broker does not learn how far this job is: %s", ex)
            self._failing = True
