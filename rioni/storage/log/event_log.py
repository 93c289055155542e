"""The internal log: the port `EventLog` on the recorder and mapper of the eventsourcing library, and copies of it."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from uuid import UUID

import msgspec
import structlog
from eventsourcing.persistence import EventStore
from sqlalchemy import Connection, Engine, bindparam, func, insert, select, update

from rioni.domain.aggregates import FORMATS, Formats
from rioni.domain.errors import CommitOutcomeUnknown, ConcurrentChange, Conflict, Unavailable
from rioni.domain.events import DomainEvent, Origin
from rioni.domain.hash_chain import LogHead
from rioni.domain.ports.event_log import LogEntry
from rioni.domain.timestamps import milliseconds
from rioni.sql.log_tables import HEAD, LOG, TRACKING
from rioni.storage.log.log_head import PostgresqlHead, SqliteHead
from rioni.storage.log.recorder import ENTRIES_PER_READ, LogMapper, SqlRecorder, lock_head, lock_log
from rioni.storage.log.segments import hash_at
from rioni.storage.sql.engines import exclusive, reading, writing


RETURN_WAIT_S = 10.0
"""How long a database server that failed during a commit may be unreachable before the client gets an error."""
RETURN_LOOK_EVERY_S = 0.1

CLOCK_BEHIND_MAX_MS = 10_000
"""How far the clock may lag the last entry without a warning: commands take their time before they wait for the lock of
the head, and the clocks of nodes differ a little."""
WARN_EVERY_S = 60.0

_log = structlog.get_logger("rioni.storage")


class SqlEventLog:
    """Implements the port `EventLog`. A forked process must create its own, with its own engine.

    Args:
        engine: from `rioni.storage.sql.engines.create_engine`, migrated.
        topics: the event class of each topic that may occur in the log.
        return_wait_s: how long a server that fails during a commit may be unreachable.
        formats: the log formats that this release knows.
    """

    def __init__(
        self,
        engine: Engine,
        topics: Mapping[str, type[DomainEvent]],
        *,
        return_wait_s: float = RETURN_WAIT_S,
        formats: Formats = FORMATS,
    ) -> None:
        self.engine = engine
        self._return_wait_s = return_wait_s
        self._mapper = LogMapper(topics, formats)
        self._recorder = SqlRecorder(partial(reading, engine), partial(writing, engine))
        end = SqliteHead if engine.dialect.name == "sqlite" else PostgresqlHead
        self._head: SqliteHead | PostgresqlHead = end(engine, self._mapper.format)
        self._warn_at_s = 0.0

    def head(self) -> LogHead:
        """Read the head of the log.

        Raises:
            Unavailable: the database can't be reached.
        """
        return self._head.read()

    def position(self) -> int:
        """Return the last position visible to any process; raises as `head`."""
        return self._head.position()

    def last_notified_position(self) -> int:
        """Return the last position that this process was notified of; raises as `head`."""
        return self._head.last_notified_position()

    def follow(self, on_news: Callable[[], object]) -> None:
        """Subscribe to the database's notifications of new entries, so that `position` need not query.

        Args:
            on_news: called after each change by another process. SQLite has no notifications.
        """
        self._head.follow(on_news)

    def entries(self, after: int, limit: int) -> Sequence[LogEntry]:
        """Return at most `limit` entries after a position, in order.

        Raises:
            UnreadableEntry: an entry can't be read; the error has its position.
            Unavailable: the database can't be reached.
        """
        return _entries(self._recorder, self._mapper, after, limit)

    @contextlib.contextmanager
    def transaction(self) -> Iterator["SqlLogTransaction"]:
        """Lock the head, commit at the end of the block, roll back if it raises.

        After it has ended, no process serves the state of the log before it.

        Raises:
            TransactionConflict: it conflicted with another transaction.
            CommitOutcomeUnknown: the server failed during the commit; see `was_committed`.
            Unavailable: the database can't be reached, is full or stays locked beyond the deadline, or the log is in
                a format that this release does not know.
        """
        with writing(self.engine) as connection:
            transaction = SqlLogTransaction(connection, self._mapper, self._head.format_of_all, self._note_behind)
            before = transaction.head
            yield transaction
            grown = transaction.head != before
            if grown:
                self._head.notify(connection, transaction.head.position)
        if grown:
            self._head.wait_for_followers(transaction.head.position)

    def was_committed(self, command_id: str, after: int) -> bool:
        """Whether a command whose commit was not acknowledged has been recorded.

        A pending commit holds the lock of the head until it ends: this waits for the lock, and for the server to
        return.

        Args:
            command_id: id of the command.
            after: the head of the log when the command began.

        Raises:
            CommitOutcomeUnknown: the server did not return in time, or the disk still fails.
        """
        deadline = time.monotonic() + self._return_wait_s
        query = select(func.max(LOG.c.position)).where(LOG.c.command_id == command_id, LOG.c.position > after)
        while True:
            try:
                # NOTE: with SQLite only a writer can determine the outcome of a failed COMMIT.
                with exclusive(self.engine) as connection:
                    lock_head(connection)
                    position = connection.scalar(query)
            except Unavailable as ex:
                if time.monotonic() > deadline:
                    raise CommitOutcomeUnknown from ex
                time.sleep(RETURN_LOOK_EVERY_S)
            else:
                break
        if position is not None:
            self._head.wait_for_followers(position)
        return position is not None

    def _note_behind(self, recorded_at: str, clock: str) -> None:
        """Warn that the clock lags the last entry of the log; at most once in `WARN_EVERY_S`."""
        behind_ms = milliseconds(recorded_at) - milliseconds(clock)
        if behind_ms > CLOCK_BEHIND_MAX_MS and (now_s := time.monotonic()) >= self._warn_at_s:
            self._warn_at_s = now_s + WARN_EVERY_S
            _log.warning(
                "the clock is behind the last entry of the log: new entries get its time until the clock has passed it",
                behind_s=behind_ms // 1_000,
                last_entry=recorded_at,
                clock=clock,
            )

    def close(self) -> None:
        """Close the connections; none may be in use."""
        self._head.close()
        self.engine.dispose()


class SqlLogTransaction(SqlRecorder):
    """Implements the port `LogTransaction`: the recorder of one transaction that writes, with the head locked.

    Args:
        connection: in a transaction that writes.
        mapper: between entries and their stored form, in the newest format that this release reads.
        format_of_all: the newest format that every live process reads.
        on_earlier: called with the time of the last entry and that of an event that is earlier.

    Raises:
        Unavailable: the log is in a newer format.
    """

    head: LogHead

    def __init__(
        self,
        connection: Connection,
        mapper: LogMapper,
        format_of_all: Callable[[Connection], int],
        on_earlier: Callable[[str, str], None],
    ) -> None:
        super().__init__(lambda: contextlib.nullcontext(connection), lambda: contextlib.nullcontext(connection))
        self.connection, self._mapper = connection, mapper
        self.head, self._format, self._recorded_at = lock_log(connection)
        self._format_of_all, self._on_earlier = format_of_all, on_earlier
        if self._format > mapper.format:
            raise Unavailable(
                f"The log is written in format {self._format}, and this release of Rioni reads it up to format "
                f"{mapper.format}. Upgrade this node to the release that the other nodes have, or to a newer one."
            )

    def append(self, stream: UUID, version: int, events: Sequence[DomainEvent], origin: Origin) -> Sequence[LogEntry]:
        """Append to a stream.

        Raises:
            ConcurrentChange: the stream has another version.
            NotReadByAll: a live node of an older release could not read the event.
        """
        self._raise_format()
        found = self.connection.scalar(_SELECT_VERSION, {"of": str(stream)})
        if found != version:
            raise ConcurrentChange(f"The stream {stream} has version {found}, not {version}. Try again.")
        origin = self._not_earlier(origin)
        entries = [
            LogEntry(
                position=self.head.position + number,
                stream=stream,
                version=version + number,
                event=event,
                origin=origin,
            )
            for number, event in enumerate(events, 1)
        ]
        EventStore(self._mapper.in_format(self._format), self).put(entries, origin=origin)
        return entries

    def _not_earlier(self, origin: Origin) -> Origin:
        """The origin, recorded no earlier than the last entry, so that times can be searched in.

        A command takes its time before it waits for the lock, and clocks are set back or differ among nodes: then the
        entry gets the time of the one before it.
        """
        if self._recorded_at is None:
            self._recorded_at = lock_log(self.connection)[2] or ""
        if origin.recorded_at < self._recorded_at:
            self._on_earlier(self._recorded_at, origin.recorded_at)
            origin = msgspec.structs.replace(origin, recorded_at=self._recorded_at)
        self._recorded_at = origin.recorded_at
        return origin

    def _raise_format(self) -> None:
        """Switch to the newest format that all live nodes read; the log records the switch in the same commit."""
        if self._format == self._mapper.format:
            return
        number = min(self._mapper.format, self._format_of_all(self.connection))
        if number > self._format:
            if self.head.position:
                _log.info("log format upgraded", before=self._format, after=number)
            self.connection.execute(update(HEAD).values(format=number))
            self._format = number

    def entries(self, after: int) -> Iterator[LogEntry]:
        """Yield the entries after a position, in order, as this transaction sees them; read lazily."""

        def pages() -> Iterator[Sequence[LogEntry]]:
            position = after
            while page := _entries(self, self._mapper, position, ENTRIES_PER_READ):
                yield page
                position = page[-1].position

        return chain.from_iterable(pages())


# PERF: SQLAlchemy takes 0.2 ms to put a statement together, and 0.06 ms to execute one that it knows.
_SELECT_VERSION = select(func.coalesce(func.max(LOG.c.version), 0)).where(LOG.c.stream == bindparam("of"))


def _entries(recorder: SqlRecorder, mapper: LogMapper, after: int, limit: int) -> list[LogEntry]:
    return [*map(mapper.to_domain_event, recorder.select_notifications(after, limit, inclusive_of_start=False))]


# --- Copies the internal log into another database: entry by entry, preserving the hash chain ---

ROWS_PER_TURN = 500
CopyProgress = Callable[[int, int], None]


def copy_log(source: Engine, target: Engine, progress: CopyProgress) -> LogHead:
    """Copy the entries that the target lacks; existing ones are unchanged. Blocks.

    Args:
        source: must not be written to meanwhile.
        target: migrated to the same schema; empty, or with a beginning of the same log.
        progress: called with the number of copied entries and the total number.

    Returns:
        The head of the source.

    Raises:
        Conflict: the target holds another log, or one that has diverged.
        Unavailable: a database can't be used.
    """
    with reading(source) as connection:
        row = connection.execute(select(HEAD.c.position, HEAD.c.hash, HEAD.c.format)).one()
        end = LogHead(row.position, row.hash)
    _check_same(source, target, end)
    while True:
        with writing(target) as connection:
            head = lock_head(connection)
            progress(min(head.position, end.position), end.position)
            if head.position >= end.position:
                return end
            with reading(source) as beginning:
                query = select(LOG).where(LOG.c.position > head.position).order_by(LOG.c.position)
                rows = [dict(row) for row in beginning.execute(query.limit(ROWS_PER_TURN)).mappings()]
            connection.execute(insert(LOG), rows)
            last = rows[-1]
            connection.execute(update(HEAD).values(position=last["position"], hash=last["hash"], format=row.format))


def copy_followers(source: Engine, target: Engine, *, but: str) -> None:
    """Copy the checkpoints of the log's consumers, except that of `but`; blocks."""
    with reading(source) as connection:
        rows = connection.execute(select(TRACKING.c.name, TRACKING.c.position).where(TRACKING.c.name != but)).all()
    with writing(target) as connection:
        for name, position in rows:
            known = TRACKING.c.name == name
            if not connection.execute(update(TRACKING).where(known).values(position=position)).rowcount:
                connection.execute(insert(TRACKING).values(name=name, position=position))


def _check_same(source: Engine, target: Engine, end: LogHead) -> None:
    """Compare the last common entry: its hash covers all entries before it."""
    with reading(target) as connection:
        last = min(end.position, connection.scalar(select(func.max(LOG.c.position))) or 0)
        theirs = hash_at(connection, last)
    with reading(source) as connection:
        ours = hash_at(connection, last)
    if ours != theirs:
        raise Conflict(
            f"The database to migrate to holds another log: entry {last} differs. Use an empty database or the target "
            "of the earlier run."
        )
