"""Runs blocking work in bounded pools of native threads, one per kind of work, so that a hang affects only its kind.

A pool has a maximum number of threads, a maximum queue, and a deadline for each task, queueing included. A full queue
and a missed deadline are errors, which become 503. A thread that hangs is not replaced: the pool never exceeds its
bound, and `rioni.server.watchdog` handles threads that do not return.

To add a pool: add a line to `KINDS` with the reason for its numbers and a field to `WorkerPools`, and pass
`pools.<field>` (a `ThreadPool`, see `rioni.domain.ports`) to the blocking code. A task may call another pool: it
waits for that pool, within that pool's deadline, and occupies a thread of each meanwhile. Prefer to make such calls one
after the other. A task that calls its own pool runs the call in place.

Threads of a pool must not wait for anything that gevent has patched: see "Native threads and gevent" in docs/decisions.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import gevent
from gevent.resolver.thread import Resolver
from gevent.threadpool import ThreadPool as GeventThreadPool

from rioni.config.settings import Config
from rioni.domain.errors import OutcomeUnknown, Unavailable
from rioni.domain.ports.host import CLIENT, StorePools, ThreadPool, direct, in_place
from rioni.installation.turns import Gate
from rioni.storage.threads import HubThread, get_ident


P = ParamSpec("P")
T = TypeVar("T")


class PoolLimits(NamedTuple):
    """The bounds of a pool."""

    threads: int
    queue: int
    """Maximum number of tasks waiting for a thread; further ones are rejected at once."""
    deadline_s: float
    """Seconds for waiting and running together; longer than the tasks' deadlines, whose errors are more specific."""
    what: str
    """The subject of errors about overload."""
    fair: bool = False
    """Whether clients are served in turn, and each may queue as many tasks as there is room for further ones."""


DATABASE = "database"
COMPUTING = "computing"
DEFINITIONS = "definitions"
EVALUATIONS = "evaluations"
COORDINATION = "coordination"
SLOTS = "slots"
ACTIVITY = "activity"
FILES = "files"
TOKENS = "tokens"
NAMES = "names"
APPENDING = "appending"
READING = "reading"
TOPICS = "topics"
KEEPING = "keeping"
TAILS = "tails"

KINDS: Mapping[str, PoolLimits] = {
    # There are as many threads as connections of PostgreSQL. Writers wait for each other for
    # `database_lock_timeout_s`, so the queue holds what accumulates in some seconds during a restart of the database.
    DATABASE: PoolLimits(10, 512, 90.0, "The database", fair=True),
    # Large batches, and the validators compiled for them: the GIL lets only one thread compute at a time.
    COMPUTING: PoolLimits(2, 128, 30.0, "This process", fair=True),
    # Schemas may take half a second each to check and to compare; publishers of large batches must not wait for them.
    DEFINITIONS: PoolLimits(2, 64, 30.0, "The check of definitions", fair=True),
    # Anybody may try filters, for 0.2 s each: one at a time, so that changes, which need a thread of `definitions` and
    # the GIL, are delayed little.
    EVALUATIONS: PoolLimits(1, 64, 30.0, "The evaluation of filters", fair=True),
    # One file with one writer at a time. A second thread reads, or cleans up after dead processes.
    COORDINATION: PoolLimits(2, 512, 60.0, "The file of sessions and cursors", fair=True),
    SLOTS: PoolLimits(2, 512, 60.0, "The file that counts streams", fair=True),
    # Anybody may ask who publishes to an event type, and who reads it.
    ACTIVITY: PoolLimits(2, 64, 60.0, "The file of what clients do", fair=True),
    # Small files: spools of measurements, tokens, certificates, the free space of the disk.
    FILES: PoolLimits(2, 32, 10.0, "The disk"),
    TOKENS: PoolLimits(2, 32, 10.0, "The check of tokens"),
    # The system's resolver has no timeout shorter than its own, of many seconds.
    NAMES: PoolLimits(4, 32, 10.0, "The resolver of host names"),
    # The pools of each storage. One group of batches is written at a time, with and without idempotency keys.
    APPENDING: PoolLimits(2, 4, 60.0, "The storage"),
    # Streams that lag behind read here, so all streams of a worker may do so at once, even if one client has them all.
    READING: PoolLimits(4, 2_048, 60.0, "The storage", fair=True),
    # Administration: creating, closing and deleting topics, and reading bounds.
    TOPICS: PoolLimits(4, 128, 60.0, "The administration of the storage", fair=True),
    # Retention and compaction read and write a whole storage. The background jobs run one after the other.
    KEEPING: PoolLimits(1, 4, 600.0, "The storage"),
    # One consumer that polls for the lifetime of the process.
    TAILS: PoolLimits(1, 8, 60.0, "The storage"),
}
"""Every kind of pool; also the values of the metrics' label `pool`."""

DATABASE_THREADS_MAX = 32
OF_STORAGES = (APPENDING, READING, TOPICS, KEEPING, TAILS)
"""The kinds of pools that each storage has."""

STORAGES_MAX = 16
"""Maximum number of storages with their own pools; further ones share one more set of pools."""


class Task:
    """A call running in a thread of a pool."""

    __slots__ = ("_args", "_function", "_kwargs", "begun_s", "thread")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self.begun_s = time.monotonic()
        """When it was handed to a thread, on the monotonic clock."""
        self.thread = 0
        """The native identifier of its thread; 0 before it has started."""

    @property
    def name(self) -> str:
        """The qualified name of the function."""
        return getattr(self._function, "__qualname__", type(self._function).__qualname__)

    def __call__(self, pool: "Pool") -> tuple[Any, BaseException | None]:
        """Run the function; return its result and its exception, if any."""
        # gevent would print every exception that ends a task, but a rejected request is no error of the broker.
        self.thread = ident = get_ident()
        pool.idents.add(ident)
        try:
            return self._function(*self._args, **self._kwargs), None
        except BaseException as ex:  # noqa: BLE001 - the waiting caller raises it
            return None, ex
        finally:
            pool.idents.discard(ident)


class Pool:
    """A bounded pool of native threads that belongs to the hub of the thread that creates it."""

    def __init__(self, kind: str, limits: PoolLimits, storage: str = "") -> None:
        """Create the pool without starting threads.

        Args:
            kind: one of `KINDS`.
            limits: of this pool.
            storage: the id of its storage, for kinds with one pool per storage.
        """
        self.kind, self.limits = kind, limits
        self.name = f"{kind} of storage {storage}" if storage else kind
        self.running: set[Task] = set()
        self.idents: set[int] = set()
        """The native identifiers of threads that run a task."""
        self._hub_thread = HubThread(gevent.get_hub())
        self.gate = Gate(limits.threads, limits.queue, limits.what)
        """Counts the tasks that wait for a thread, and those that were rejected."""
        self._threads = GeventThreadPool(limits.threads)

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread of the pool; blocks only the calling greenlet or native thread.

        Raises:
            Overloaded: the queue is full, or the client's part of it, or no thread was free within the deadline; the
                function was not called.
            OutcomeUnknown: the function has not ended within the deadline, and continues to run.
            Exception: the exception of the function.
        """
        return self._call(function, args, kwargs, self.limits.deadline_s)

    def without_deadline(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function without a deadline; used by `rioni.domain.ports.host.without_deadline`."""
        return self._call(function, args, kwargs, None)

    def overdue(self, grace_s: float) -> list[Task]:
        """Return the tasks still running some seconds after their deadline."""
        since_s = time.monotonic() - self.limits.deadline_s - grace_s
        return [task for task in self.running if task.begun_s < since_s]

    def oldest_s(self) -> float:
        """Return the running time of the oldest task, in seconds; 0 if none is running."""
        return time.monotonic() - min(task.begun_s for task in self.running) if self.running else 0.0

    def _call(self, function: Callable[..., T], args: Any, kwargs: Any, deadline_s: float | None) -> T:
        if get_ident() in self.idents:
            return function(*args, **kwargs)
        if not self._hub_thread.here:
            return self._hub_thread(self._run, function, args, kwargs, deadline_s)
        return self._run(function, args, kwargs, deadline_s)

    def _run(self, function: Callable[..., T], args: Any, kwargs: Any, deadline_s: float | None) -> T:
        begun_s = time.monotonic()
        client = CLIENT.get() if self.limits.fair else ""  # waits: a variable of the context
        self.gate.enter(client, deadline_s)
        task = Task(function, args, kwargs)
        self.running.add(task)
        try:
            pending = self._threads.spawn(task, self)
        except BaseException:
            self._end(task, client)
            raise
        pending.rawlink(partial(self._end, task, client))
        left_s = None if deadline_s is None else max(0.0, begun_s + deadline_s - time.monotonic())
        outcome: tuple[Any, BaseException | None] | None = pending.wait(left_s)
        if outcome is None:
            raise OutcomeUnknown(
                f"{self.limits.what} has not answered within {deadline_s:g} s: the outcome is unknown. Check the "
                "result before retrying."
            )
        result, error = outcome
        if error is not None:
            raise error
        return cast("T", result)

    def _end(self, task: Task, client: str, _pending: object = None) -> None:
        self.running.discard(task)
        self.gate.leave(client)


def kinds_for(config: Config) -> Mapping[str, PoolLimits]:
    """Return the limits of the pools, with those that depend on settings adjusted."""
    database, appending = KINDS[DATABASE], KINDS[APPENDING]
    threads = min(config.database_connections_max, DATABASE_THREADS_MAX)
    return {
        **KINDS,
        DATABASE: database._replace(threads=threads, deadline_s=config.database_lock_timeout_s + database.deadline_s),
        APPENDING: appending._replace(deadline_s=config.append_timeout_s + appending.deadline_s),
    }


def resolve_in(pool: "Pool") -> None:
    """Resolve host names in a pool, for all connections made by greenlets of this thread."""
    hub: Any = gevent.get_hub()
    resolver: Any = Resolver(hub)
    resolver.pool = _Applying(pool)
    hub.resolver = resolver


class _Applying:
    """Adapts a pool to gevent's resolver; errors of the pool become resolver errors."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        try:
            return self._pool(function, *args, **(kwargs or {}))
        except Unavailable as ex:
            raise socket.gaierror(socket.EAI_AGAIN, str(ex)) from ex


class WorkerPools(NamedTuple):
    """The pool for each kind of blocking work; by default everything runs in place, for standalone commands."""

    database: ThreadPool = direct
    computing: ThreadPool = direct
    definitions: ThreadPool = direct
    evaluations: ThreadPool = direct
    coordination: ThreadPool = direct
    slots: ThreadPool = direct
    activity: ThreadPool = direct
    files: ThreadPool = direct
    tokens: ThreadPool = direct
    of_storage: Callable[[str], StorePools] = in_place


NO_POOLS = WorkerPools()
"""Runs everything in place."""


class Pools:
    """All pools of a worker process; create it in the thread of the process's hub."""

    def __init__(self, kinds: Mapping[str, PoolLimits] = KINDS) -> None:
        """Create the pools without starting threads.

        Args:
            kinds: the limits of each kind of pool.
        """
        self._kinds = kinds
        self._shared = {kind: Pool(kind, limits) for kind, limits in kinds.items() if kind not in OF_STORAGES}
        self._storages: dict[str, dict[str, Pool]] = {}
        self._hub_thread = HubThread(gevent.get_hub())

    def __iter__(self) -> Iterator[Pool]:
        """Iterate over all existing pools."""
        for pools in (self._shared, *self._storages.values()):
            yield from pools.values()

    def __getitem__(self, kind: str) -> Pool:
        """Return the pool of a kind with a single pool."""
        return self._shared[kind]

    def worker_pools(self) -> WorkerPools:
        """Return the pools in the form used by blocking code."""
        shared = {kind: pool for kind, pool in self._shared.items() if kind != NAMES}
        return WorkerPools(**shared, of_storage=self.of_storage)

    def of_storage(self, storage_id: str) -> StorePools:
        """Return the pools of a storage, its own unless there are more than `STORAGES_MAX` storages."""
        key = storage_id if storage_id in self._storages or len(self._storages) < STORAGES_MAX else "(others)"
        if key not in self._storages:
            # A pool belongs to the hub of the thread that creates it, and stores are opened in threads of other pools.
            self._hub_thread(self._make, key)
        pools = self._storages[key]
        return StorePools(
            append=pools[APPENDING],
            read=pools[READING],
            topics=pools[TOPICS],
            keep=pools[KEEPING],
            follow=pools[TAILS],
        )

    def _make(self, key: str) -> None:
        if key not in self._storages:
            self._storages[key] = {kind: Pool(kind, self._kinds[kind], key) for kind in OF_STORAGES}
