"""Records of rebuilds: their progress, for operators, and the rows written by their tasks, to resume them."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from sqlalchemy import Connection, Engine, delete, insert, select, update

from rioni.domain.errors import NotFound
from rioni.domain.hash_chain import LogHead
from rioni.domain.timestamps import rfc3339
from rioni.sql.engines import writing
from rioni.sql.log_tables import REBUILD_TASKS, REBUILDS


RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"

KEPT_MAX = 100
"""How many rebuilds are remembered."""

NOTE_EVERY_S = 1.0

Progress = Callable[[str, int, int], None]
"""Called with the phase, the completed amount, and the total."""


class RebuildPlan(msgspec.Struct, frozen=True):
    """The scope of a rebuild. It resumes an interrupted one with the same plan, apart from the end of the log."""

    generation: str
    tables: Sequence[str]
    incremental: bool
    """Whether the generation is only continued."""
    fold: int
    """The version of the fold."""
    upto: int | None
    """The requested position; None for the end of the log."""
    position: int
    """The last entry that is folded in bulk."""
    hash: str
    """The hash of this entry, hexadecimal."""
    tasks: int

    @property
    def head(self) -> LogHead:
        """The last entry that is folded in bulk."""
        return LogHead(self.position, bytes.fromhex(self.hash))

    def continues(self, other: "RebuildPlan") -> bool:
        """Whether a rebuild with another plan can be continued with this one."""
        unchanged = msgspec.structs.replace(self, position=other.position, hash=other.hash, tasks=other.tasks)
        return unchanged == other


class Rebuild(NamedTuple):
    """A rebuild, as it is recorded."""

    id: str
    started_at: str
    updated_at: str
    state: str
    """`running`, `done`, `failed`, or `interrupted` if its process ended without reporting that."""
    phase: str
    done: int
    total: int
    """How much of the phase is done, and its total."""
    detail: str
    """Details of the result or of the failure."""
    plan: RebuildPlan


def newest(connection: Connection) -> list[Rebuild]:
    """All rebuilds that are remembered, newest first."""
    rows = connection.execute(select(REBUILDS).order_by(REBUILDS.c.started_at.desc(), REBUILDS.c.id))
    return [_rebuild(row) for row in rows]


def find(connection: Connection, rebuild: str) -> Rebuild:
    """Return a rebuild by its id; raises NotFound if there is no such rebuild."""
    row = connection.execute(select(REBUILDS).where(REBUILDS.c.id == rebuild)).first()
    if row is None:
        raise NotFound(f"There is no rebuild {rebuild}, or it is forgotten: the last {KEPT_MAX} are known.")
    return _rebuild(row)


def _rebuild(row: Any) -> Rebuild:
    return Rebuild(**row._asdict() | {"plan": msgspec.json.decode(row.plan, type=RebuildPlan)})


class RebuildRecord:
    """The record of a running rebuild. All methods block on the database.

    Args:
        engine: the engine of the rebuild, whose lock the caller holds.
        id: the id of the rebuild.
        plan: the plan of the rebuild.
        resumed: whether an interrupted rebuild goes on.
    """

    def __init__(self, engine: Engine, id: str, plan: RebuildPlan, *, resumed: bool) -> None:  # noqa: A002 - what it is
        self.id, self.plan, self.resumed = id, plan, resumed
        self._engine, self._noted_at = engine, 0.0
        self._phase = ""

    def progress(self, phase: str, done: int, total: int) -> None:
        """Note the progress; once a second at most, but the begin and the end of each phase."""
        now = time.monotonic()
        if phase != self._phase or done == total or now - self._noted_at >= NOTE_EVERY_S:
            self._phase, self._noted_at = phase, now
            self._note(phase=phase, done=done, total=total)

    def finish(self, state: str, detail: str) -> None:
        """Note the end, and forget the record of the tasks."""
        with writing(self._engine) as connection:
            connection.execute(delete(REBUILD_TASKS).where(REBUILD_TASKS.c.rebuild == self.id))
        self._note(state=state, detail=detail)

    def tasks(self) -> Mapping[int, Mapping[str, int]]:
        """The tasks whose rows are in the tables, at least in part, and how many rows each has for which table."""
        query = select(REBUILD_TASKS.c.task, REBUILD_TASKS.c.rows).where(REBUILD_TASKS.c.rebuild == self.id)
        with self._engine.connect() as connection:
            return {row.task: msgspec.json.decode(row.rows) for row in connection.execute(query)}

    def _note(self, **values: Any) -> None:
        of_this = REBUILDS.c.id == self.id
        with writing(self._engine) as connection:
            connection.execute(update(REBUILDS).where(of_this).values(updated_at=_now(), **values))


def begin(engine: Engine, plan: RebuildPlan, usable: Callable[[Rebuild], bool]) -> RebuildRecord:
    """Resume an interrupted rebuild of the same plan, or record a new one; only for the holder of the rebuild lock.

    Args:
        engine: the engine of the rebuild.
        plan: the plan of the rebuild.
        usable: returns whether everything that an interrupted rebuild has built is still there.
    """
    with engine.connect() as connection:
        dead = [each for each in newest(connection) if each.state == RUNNING]
    resumed = next((each for each in dead if plan.continues(each.plan) and usable(each)), None)
    with writing(engine) as connection:
        for each in dead:
            if each is not resumed:
                connection.execute(update(REBUILDS).where(REBUILDS.c.id == each.id).values(state=INTERRUPTED))
                connection.execute(delete(REBUILD_TASKS).where(REBUILD_TASKS.c.rebuild == each.id))
        if resumed is not None:
            return RebuildRecord(engine, resumed.id, resumed.plan, resumed=True)
        now, new = _now(), str(uuid4())
        encoded = msgspec.json.encode(plan).decode()
        row = Rebuild(new, now, now, RUNNING, "start", 0, 1, "", plan)._asdict() | {"plan": encoded}
        connection.execute(insert(REBUILDS).values(row))
        last = select(REBUILDS.c.started_at).order_by(REBUILDS.c.started_at.desc()).offset(KEPT_MAX - 1).limit(1)
        connection.execute(delete(REBUILDS).where(REBUILDS.c.started_at < last.scalar_subquery()))
    return RebuildRecord(engine, new, plan, resumed=False)


def running(connection: Connection) -> Rebuild | None:
    """The rebuild that runs, or was interrupted and can be resumed; None without one."""
    row = connection.execute(select(REBUILDS).where(REBUILDS.c.state == RUNNING)).first()
    return None if row is None else _rebuild(row)


def _now() -> str:
    return rfc3339(int(time.time() * 1000))
