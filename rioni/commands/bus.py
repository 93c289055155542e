"""Command bus: runs the handler of a command in transactions, after its permission was checked."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import structlog

from rioni.commands.unit_of_work import CommandContext, Outside, UnitOfWork
from rioni.config.logs import FailureLog
from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import CommitOutcomeUnknown, ReadOnly, RioniError, TransactionConflict, Unavailable
from rioni.domain.limits import Limits
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_log import EventLog, ReadModels
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import ThreadPool, direct


class Route(NamedTuple):
    """Permission, handler and precheck of a command."""

    handler: Callable[[Any, UnitOfWork], Any]
    permission: Callable[[Any, UnitOfWork], None]
    allowed_in_read_only: bool = False
    """Whether it runs while the feature `disable_db_write_operations` is on."""
    precheck: Callable[[Any, UnitOfWork], None] | None = None
    """Checks that run before everything else: permissions, and whether the resource exists."""


ATTEMPTS_MAX = 5
"""How often a command is run whose transaction conflicts with others, or was lost."""
STEPS_MAX = 20
"""Maximum number of transactions of a command. A switch takes eight, including the completion of an earlier unfinished
one; the rest is a reserve for concurrent changes."""

_log = structlog.get_logger("rioni.bus")
_failures = FailureLog(_log)

_NOT_UNDONE = "could not undo a failed command's effects; the background job will retry"


class CommandBus:
    """Runs commands.

    A command is one transaction: lock the head of the log, load the states concerned, decide, append the events,
    fold them into the read models, commit. A crash leaves all of it or nothing, and a client that got the answer sees
    the change in its next query. If the database connection is lost during the commit, the log shows afterwards
    whether it was committed: by the command's id.

    A command that needs a store, or a slow check, has several transactions with that work in between (see `Outside`):
    the head of the log is never locked while the command waits for something else.
    """

    def __init__(  # noqa: PLR0913 - what all commands need
        self,
        log: EventLog,
        models: ReadModels,
        routes: Mapping[type, Route],
        *,
        stores: EventStores,
        coordinator: Coordinator,
        limits: Limits,
        default_admin: Attribute,
        auditors: Sequence[Attribute] = (),
        pool: ThreadPool = direct,
        compute: ThreadPool = direct,
    ) -> None:
        """Keep the dependencies of commands: transactions run in `pool`, slow checks in `compute`.

        `routes` has the route of each class of commands. `auditors` may read, and create nothing.
        """
        self._log, self._routes, self._coordinator, self._pool = log, routes, coordinator, pool
        self._unit_of_work = partial(
            UnitOfWork,
            models=models,
            stores=stores,
            coordinator=coordinator,
            compute=compute,
            limits=limits,
            default_admin=default_admin,
            auditors=auditors,
        )
        self._running: set[str] = set()
        """The topics that running commands of this process may be creating."""

    def dispatch(self, command: Any, context: CommandContext) -> Any:
        """Run a command and return its handler's result. Blocks the calling greenlet only, on the database and stores.

        Raises:
            AccessDenied, AdminOnly: the subject lacks the permission.
            ReadOnly: writing is switched off.
            CommitOutcomeUnknown: the database connection was lost during the commit, and can't be restored yet.
            RioniError: the handler raised it; nothing has changed then, or the change will be rolled back.
        """
        topic = context.topic
        self._running.add(topic)
        try:
            return self._run_to_end(command, context)
        finally:
            self._running.discard(topic)

    def is_running(self, worker: str, topic: str) -> bool:
        """Whether a process is alive and, if it is this one, still runs the command that creates a topic."""
        return topic in self._running if worker == self._coordinator.worker else self._coordinator.is_alive(worker)

    def transact(self, command: Any, context: CommandContext) -> Any:
        """Run one transaction of a command; return its handler's result, `Outside` if work outside is needed."""
        result, after_commit = self._pool(self._dispatch_with_retries, command, context)
        _failures.succeeded(_NOT_UNDONE)
        for effect in after_commit:
            effect()
        return result

    def _run_to_end(self, command: Any, context: CommandContext, steps_left: int = STEPS_MAX) -> Any:
        if not steps_left:
            raise Unavailable("Concurrent changes to the same resource. Try again later.")
        result = self.transact(command, context)
        if not isinstance(result, Outside):
            return result
        try:
            return self._run_to_end(result.work(), context, steps_left - 1)
        except BaseException as ex:
            if result.undo is not None:
                self._take_back(result.undo(ex), context)
            raise

    def _take_back(self, command: Any, context: CommandContext) -> None:
        try:
            self.transact(command, context)
        except RioniError as ex:
            _failures.failed(_NOT_UNDONE, ex)

    def _dispatch_with_retries(self, command: Any, context: CommandContext) -> tuple[Any, Sequence[Callable[[], None]]]:
        for _ in range(ATTEMPTS_MAX - 1):
            with contextlib.suppress(TransactionConflict):
                return self._attempt(command, context)
        return self._attempt(command, context)

    def _attempt(self, command: Any, context: CommandContext) -> tuple[Any, Sequence[Callable[[], None]]]:
        before: int | None = None
        try:
            with self._log.transaction() as transaction:
                before = transaction.head.position
                unit_of_work = self._unit_of_work(transaction, context)
                result = self._run(command, unit_of_work)
        except CommitOutcomeUnknown:
            if before is None or not self._log.was_committed(context.origin.command_id, before):
                raise TransactionConflict from None
        return result, unit_of_work.after_commit

    def _run(self, command: Any, unit_of_work: UnitOfWork) -> Any:
        route = self._routes[type(command)]
        if route.precheck is not None:
            route.precheck(command, unit_of_work)
        if not route.allowed_in_read_only and "disable_db_write_operations" in unit_of_work.settings().features:
            raise ReadOnly
        route.permission(command, unit_of_work)
        return route.handler(command, unit_of_work)
