"""Pools of native threads for what blocks: small, each for one kind of work, so that what hangs starves only itself.

A pool has a bound on its threads, a bound on its queue, and a deadline for each task, queueing included. A full queue
and a deadline are errors, which become 503. A thread that hangs keeps its place: the pool never grows beyond its bound,
and `rioni.bootstrap.watchdog` sees to threads that do not come back.

A pool of one's own: add a line to `KINDS` with the reason for its numbers and a field to `Offloads`, and hand
`offloads.<field>` (a `ThreadPool`, see `rioni.domain.ports`) to whoever blocks. A task may call what is offloaded to
another pool: it waits for that pool, within that pool's deadline, and a thread of each is taken meanwhile. Order such
calls one after the other where possible. A task that calls its own pool runs the call in place.

Threads of a pool must wait for nothing that gevent has patched: see "Native threads and gevent" in docs/decisions.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import gevent
from gevent import monkey
from gevent.lock import Semaphore
from gevent.resolver.thread import Resolver
from gevent.threadpool import ThreadPool as GeventThreadPool

from rioni.config.settings import Config
from rioni.domain.errors import OutcomeUnknown, Overloaded, Unavailable
from rioni.domain.ports.thread_pool import StoreOffloads, ThreadPool, direct, in_place
from rioni.storage.hub_thread import HubThread


P = ParamSpec("P")
T = TypeVar("T")


class Limits(NamedTuple):
    """The bounds of a pool."""

    threads: int
    queue: int
    """Tasks that wait for a thread; a further one is refused at once."""
    deadline_s: float
    """For waiting and running together; it is longer than the deadlines of what runs, whose errors say more."""
    what: str
    """What clients are told to be overloaded."""


DATABASE = "database"
COMPUTING = "computing"
DEFINITIONS = "definitions"
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

KINDS: Mapping[str, Limits] = {
    # As many threads as connections of PostgreSQL; writers wait for each other for `database_lock_timeout_s`, so the
    # queue is what a restart of the database piles up in some seconds.
    DATABASE: Limits(10, 256, 90.0, "The database"),
    # Large batches, and what is compiled for them: the interpreter's lock lets only one compute at a time.
    COMPUTING: Limits(2, 64, 30.0, "This process"),
    # Schemas may take half a second each to check and to compare; publishers of large batches don't wait for them.
    DEFINITIONS: Limits(2, 32, 30.0, "The check of definitions"),
    # One file with one writer each. A second thread reads, or ends what is left of dead processes.
    COORDINATION: Limits(2, 256, 60.0, "The file of sessions and cursors"),
    SLOTS: Limits(2, 256, 60.0, "The file that counts streams"),
    ACTIVITY: Limits(2, 32, 60.0, "The file of what clients do"),
    # Small files: spools of measurements, tokens, certificates, the free space of the disk.
    FILES: Limits(2, 32, 10.0, "The disk"),
    TOKENS: Limits(2, 32, 10.0, "The check of tokens"),
    # The system's resolver knows no deadline shorter than its own, of many seconds.
    NAMES: Limits(4, 32, 10.0, "The resolver of host names"),
    # The pools of each storage. One group of batches is written at a time, with and without names.
    APPENDING: Limits(2, 4, 60.0, "The storage"),
    # A stream that falls behind reads here, so all streams of a worker may come at once.
    READING: Limits(4, 1_024, 60.0, "The storage"),
    # Administration: creating, closing, deleting and asking for bounds.
    TOPICS: Limits(4, 64, 60.0, "The administration of the storage"),
    # Retention and compaction read and write a whole storage. The housekeeper does one thing after the other.
    KEEPING: Limits(1, 4, 600.0, "The storage"),
    # One consumer that polls, for as long as the process lives.
    TAILS: Limits(1, 8, 60.0, "The storage"),
}
"""Every kind of pool. These names are also the values of the metrics' label `pool`."""

DATABASE_THREADS_MAX = 32
OF_STORAGES = (APPENDING, READING, TOPICS, KEEPING, TAILS)
"""The kinds of which each storage has a pool."""

STORAGES_MAX = 16
"""Storages with pools of their own; those that a process opens beyond that share one more set of pools."""

RETRY_AFTER_S = 5

_get_ident: Callable[[], int] = monkey.get_original("_thread", "get_ident")


class Task:
    """A call that runs in a thread of a pool."""

    __slots__ = ("_args", "_function", "_kwargs", "begun_s", "thread")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self.begun_s = time.monotonic()
        """When it was handed to a thread."""
        self.thread = 0
        """The native identifier of its thread; 0 before it has begun."""

    @property
    def name(self) -> str:
        """What is called."""
        return getattr(self._function, "__qualname__", type(self._function).__qualname__)

    def __call__(self, pool: "Pool") -> tuple[Any, BaseException | None]:
        """Run; return what the function returns, or what it raises."""
        # gevent would print every exception that ends a task, and a refused request is no error of the broker.
        self.thread = ident = _get_ident()
        pool.idents.add(ident)
        try:
            return self._function(*self._args, **self._kwargs), None
        except BaseException as ex:  # noqa: BLE001 - whoever waits for the result raises it
            return None, ex
        finally:
            pool.idents.discard(ident)


class Pool:
    """A bounded pool of native threads that belongs to the hub of the thread that makes it."""

    def __init__(self, kind: str, limits: Limits, storage: str = "") -> None:
        """Start no thread yet.

        Args:
            kind: one of `KINDS`.
            limits: of this pool.
            storage: the storage that it is for, where each has its own.
        """
        self.kind, self.limits = kind, limits
        self.name = f"{kind} of storage {storage}" if storage else kind
        self.queued = 0
        """Tasks that wait for a thread."""
        self.rejected = 0
        """Tasks that were refused because the queue was full."""
        self.running: set[Task] = set()
        self.idents: set[int] = set()
        """The native threads that run a task."""
        self._home = HubThread(gevent.get_hub())
        self._free = Semaphore(limits.threads)
        self._threads = GeventThreadPool(limits.threads)

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread of the pool; blocks the calling greenlet, or native thread, alone.

        Raises:
            Overloaded: the queue is full, or no thread was free within the deadline; nothing has begun.
            OutcomeUnknown: the function runs, and has not ended within the deadline.
            Exception: what the function raises.
        """
        return self._call(function, args, kwargs, self.limits.deadline_s)

    def without_deadline(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The same without a deadline, which `rioni.domain.ports.thread_pool.without_deadline` finds."""
        return self._call(function, args, kwargs, None)

    def overdue(self, grace_s: float) -> list[Task]:
        """The tasks that still run although their deadline is over by some seconds."""
        since_s = time.monotonic() - self.limits.deadline_s - grace_s
        return [task for task in self.running if task.begun_s < since_s]

    def oldest_s(self) -> float:
        """For how long the oldest task runs, in seconds; 0 where nothing does."""
        return time.monotonic() - min(task.begun_s for task in self.running) if self.running else 0.0

    def _call(self, function: Callable[..., T], args: Any, kwargs: Any, deadline_s: float | None) -> T:
        if _get_ident() in self.idents:
            return function(*args, **kwargs)
        if not self._home.here:
            return self._home(self._run, function, args, kwargs, deadline_s)
        return self._run(function, args, kwargs, deadline_s)

    def _run(self, function: Callable[..., T], args: Any, kwargs: Any, deadline_s: float | None) -> T:
        begun_s = time.monotonic()
        self._take_thread(deadline_s)
        task = Task(function, args, kwargs)
        self.running.add(task)
        try:
            pending = self._threads.spawn(task, self)
        except BaseException:
            self._end(task)
            raise
        pending.rawlink(partial(self._end, task))
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

    def _take_thread(self, wait_s: float | None) -> None:
        if self._free.acquire(blocking=False):
            return
        if self.queued >= self.limits.queue:
            self.rejected += 1
            raise Overloaded(f"{self.limits.what} is overloaded. Try again later.", RETRY_AFTER_S)
        self.queued += 1
        try:
            taken = self._free.acquire(timeout=wait_s)
        finally:
            self.queued -= 1
        if not taken:
            self.rejected += 1
            raise Overloaded(f"{self.limits.what} has been busy for {wait_s:g} s. Try again later.", RETRY_AFTER_S)

    def _end(self, task: Task, _pending: object = None) -> None:
        self.running.discard(task)
        self._free.release()


def kinds_for(config: Config) -> Mapping[str, Limits]:
    """The limits of the pools, as far as settings decide on them."""
    database, appending = KINDS[DATABASE], KINDS[APPENDING]
    threads = min(config.database_connections_max, DATABASE_THREADS_MAX)
    return {
        **KINDS,
        DATABASE: database._replace(threads=threads, deadline_s=config.database_lock_timeout_s + database.deadline_s),
        APPENDING: appending._replace(deadline_s=config.append_timeout_s + appending.deadline_s),
    }


def resolve_in(pool: "Pool") -> None:
    """Have the names of hosts looked up in a pool, whoever connects from a greenlet of this thread."""
    hub: Any = gevent.get_hub()
    resolver: Any = Resolver(hub)
    resolver.pool = _Applying(pool)
    hub.resolver = resolver


class _Applying:
    """A pool as gevent's resolver uses it; what the pool refuses is an error of the resolver."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        try:
            return self._pool(function, *args, **(kwargs or {}))
        except Unavailable as ex:
            raise socket.gaierror(socket.EAI_AGAIN, str(ex)) from ex


class Offloads(NamedTuple):
    """Where each kind of work blocks; by default in place, as commands want it that run alone."""

    database: ThreadPool = direct
    computing: ThreadPool = direct
    definitions: ThreadPool = direct
    coordination: ThreadPool = direct
    slots: ThreadPool = direct
    activity: ThreadPool = direct
    files: ThreadPool = direct
    tokens: ThreadPool = direct
    of_storage: Callable[[str], StoreOffloads] = in_place


NO_POOLS = Offloads()
"""Everything blocks in place."""


class Pools:
    """All pools of a worker process; to be made in the thread of its hub."""

    def __init__(self, kinds: Mapping[str, Limits] = KINDS) -> None:
        """Start no thread yet.

        Args:
            kinds: the limits of each kind of pool.
        """
        self._kinds = kinds
        self._shared = {kind: Pool(kind, limits) for kind, limits in kinds.items() if kind not in OF_STORAGES}
        self._storages: dict[str, dict[str, Pool]] = {}
        self._home = HubThread(gevent.get_hub())

    def __iter__(self) -> Iterator[Pool]:
        """Every pool that there is."""
        for pools in (self._shared, *self._storages.values()):
            yield from pools.values()

    def __getitem__(self, kind: str) -> Pool:
        """The pool of a kind of which there is one."""
        return self._shared[kind]

    def offloads(self) -> Offloads:
        """The pools as those see them who block."""
        shared = self._shared
        return Offloads(
            database=shared[DATABASE],
            computing=shared[COMPUTING],
            definitions=shared[DEFINITIONS],
            coordination=shared[COORDINATION],
            slots=shared[SLOTS],
            activity=shared[ACTIVITY],
            files=shared[FILES],
            tokens=shared[TOKENS],
            of_storage=self.of_storage,
        )

    def of_storage(self, storage_id: str) -> StoreOffloads:
        """The pools of a storage, which no other one has unless there are more than `STORAGES_MAX`."""
        key = storage_id if storage_id in self._storages or len(self._storages) < STORAGES_MAX else "(others)"
        if key not in self._storages:
            # A pool belongs to the hub of the thread that makes it, and stores are opened in threads of other pools.
            self._home(self._make, key)
        pools = self._storages[key]
        return StoreOffloads(
            append=pools[APPENDING],
            read=pools[READING],
            topics=pools[TOPICS],
            keep=pools[KEEPING],
            follow=pools[TAILS],
        )

    def _make(self, key: str) -> None:
        if key not in self._storages:
            self._storages[key] = {kind: Pool(kind, self._kinds[kind], key) for kind in OF_STORAGES}
