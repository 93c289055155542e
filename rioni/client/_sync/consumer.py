"""Consumes a subscription: events in order, commits, and new streams whenever one ends."""

import logging
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rioni.client._sync import concurrency
from rioni.client._sync.exchange import ConsumerExchange
from rioni.client._sync.stream_reader import StreamCommitter, StreamReader
from rioni.client._sync.subscriptions import Subscriptions
from rioni.client._sync.transport import Transport
from rioni.client.consumption import failures
from rioni.client.consumption.event_values import Types
from rioni.client.consumption.events import Event, EventBatch
from rioni.client.consumption.failures import REQUEST_S
from rioni.client.consumption.lanes import Assigned, Item
from rioni.client.consumption.options import ConsumerOptions, Options
from rioni.wire.subscriptions import Subscription


# --- Handles the events of a consumer with a handler of the application ---

_LOG = logging.getLogger("rioni.client.consumer")


class Workers:
    """Handles batches, one after the other in each partition.

    Args:
        exchange: gives the batches.
        reader: is asked to close a stream with an event that can't be handled.
        tell: tells the application of assigned and revoked partitions.
        handler: of the application, called with each event.
        attempts: how often an event is tried at most.
        on_error: what to do with an event after the last attempt.
    """

    def __init__(
        self,
        exchange: ConsumerExchange,
        reader: StreamReader,
        tell: Callable[..., Any],
        handler: Callable[..., Any],
        attempts: int,
        on_error: failures.OnError,
    ) -> None:
        self._exchange, self._reader, self._tell = exchange, reader, tell
        self._handler, self._attempts, self._on_error = handler, attempts, on_error

    def run(self) -> None:
        """Handle what there is until it is time to stop."""
        try:
            while (item := self._exchange.take()) is not None:
                try:
                    if isinstance(item, EventBatch):
                        self._handle_batch(item)
                    else:
                        self._tell(item)
                finally:
                    self._exchange.release(item)
        except (Exception, SystemExit) as ex:  # noqa: BLE001 - the consumer raises it
            self._exchange.fail(ex)
        finally:
            # A cancelled worker ends all others.
            self._exchange.stop()

    def _handle_batch(self, batch: EventBatch[Any]) -> None:
        index, handles_itself = batch.handled, self._exchange.options.commits_itself
        while index < len(batch) and not batch.dropped:
            if not self._handle(Event(batch.json[index], batch, index), batch):
                return
            index += 1
            if handles_itself:
                batch.handled = index = max(index, batch.handled)

    def _handle(self, event: Event[Any], batch: EventBatch[Any]) -> bool:
        """Handle an event; returns whether that is done."""
        for attempt in range(1, self._attempts + 1):
            try:
                concurrency.invoke(self._handler, event)
            except Exception as ex:  # noqa: BLE001 - the application says what to do with its errors
                if batch.dropped:
                    return False
                if attempt == self._attempts:
                    return self._failed(event, batch, ex)
                _LOG.warning("Attempt %d to handle %s failed: %r", attempt, _name(event), ex)
                self._exchange.pause(failures.retry_wait_s(attempt))
            else:
                return True
            if batch.dropped:
                return False
        raise AssertionError

    def _failed(self, event: Event[Any], batch: EventBatch[Any], ex: Exception) -> bool:
        outcome = failures.outcome(self._on_error, event, ex)
        if outcome == failures.SKIP:
            _LOG.error("%s is skipped: %r", _name(event), ex)
            return True
        if outcome == failures.STOP:
            ex.add_note(f"While {_name(event)} was handled.")
            raise ex
        _LOG.error("%s is left to the broker: %r", _name(event), ex)
        with self._exchange.shared:
            session = self._exchange.state.fail(batch)
        if session is not None:
            # Before the stream ends: then the broker has the reason when it counts the failure.
            self._reader.explain(session, failures.reason_of(event, ex))
            self._reader.interrupt(session)
        return False


def _name(event: Event[Any]) -> str:
    """The name of an event in logs; of its contents it has nothing but the id."""
    try:
        eid = event.metadata.eid
    except Exception:  # noqa: BLE001 - the handler has complained of it
        eid = None
    return f"event {eid or 'without id'} of {event.event_type}, partition {event.partition}"


CONCURRENCY_MAX = 1_000
CANCELLED_S = 1.0
"""Seconds that a task that did not end in time may take to notice that it is cancelled."""

T = TypeVar("T")


class Consumer(Generic[T]):
    """Hands out the events of a subscription, once: made by `client.subscription`, which has the arguments.

    Iterating gives events, `batches` gives batches, and `run` calls a function. Used as a context manager, leaving the
    block ends everything.
    """

    def __init__(
        self,
        transport: Transport,
        subscription: str | Subscription,
        types: Types,
        options: ConsumerOptions,
    ) -> None:
        self._options = Options(**options)
        self._exchange = ConsumerExchange(self._options, types)
        self._reader = StreamReader(transport, self._exchange, subscription)
        self._committer = StreamCommitter(Subscriptions(transport, REQUEST_S), self._exchange, self._reader)
        self._reading: concurrency.Task | None = None
        self._committing: concurrency.Task | None = None
        self._working: list[concurrency.Task] = []
        self._entered = self._ended = False
        self._hand: EventBatch[T] | None = None
        self._given = 0
        """The number of events of the batch in hand that the loop has got."""

    # --- One event at a time ---

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._count_as_handled()
        self._end()

    def __iter__(self) -> Iterator[Event[T]]:
        """The events, until `stop`. An event is handled when the next one is asked for, or its block is left.

        Leaving the loop does not end the consumer within its block; otherwise it does as soon as Python removes the
        iterator, and the last event does not count as handled.

        Raises:
            ClientError: going on is of no use, as the subscription does not exist or may not be read.
        """
        handles_itself = self._options.commits_itself
        try:
            while (batch := self._next()) is not None:
                for index in range(self._given, len(batch.json)):
                    if batch.dropped:
                        break
                    self._given = index + 1
                    yield Event(batch.json[index], batch, index)
                    if handles_itself:
                        batch.handled = index + 1
                self._put_down()
        finally:
            if not self._entered:
                self._end()
        self._raise()

    def batches(self) -> Iterator[EventBatch[T]]:
        """The events in batches, each of one partition; a batch is handled when the next one is asked for.

        Otherwise as iterating over events; raises the same errors.
        """
        try:
            while (batch := self._next()) is not None:
                self._given = len(batch)
                yield batch
                self._count_as_handled()
                self._put_down()
        finally:
            if not self._entered:
                self._end()
        self._raise()

    def _next(self) -> EventBatch[T] | None:
        """The next batch, or the events of the one in hand that a loop which was left has not got."""
        self._start()
        if self._hand is not None:
            self._count_as_handled()
            if self._given < len(self._hand):
                return self._hand
            self._put_down()
        while (item := self._exchange.take()) is not None:
            if isinstance(item, EventBatch):
                self._hand, self._given = item, item.handled
                return item
            try:
                self._tell(item)
            finally:
                self._exchange.release(item)
        return None

    def _count_as_handled(self) -> None:
        if self._hand is not None and self._options.commits_itself:
            self._hand.handled = self._given

    def _put_down(self) -> None:
        if (batch := self._hand) is not None:
            self._hand = None
            self._exchange.release(batch)

    # --- Several events at a time ---

    def run(
        self,
        handler: Callable[[Event[T]], concurrency.Result],
        *,
        concurrency: int = 4,
        attempts: int = 3,
        on_error: failures.OnError = failures.STOP,
    ) -> None:
        """Call a function with each event, until `stop`; blocks that long, and ends the consumer.

        Events of a partition are handled in order, one after the other; several partitions at the same time.

        Args:
            handler: the function. The event is handled when it returns.
            concurrency: how many events are handled at the same time at most.
            attempts: how often the function is called with an event if it raises an error; with growing pauses, during
                which the partition waits.
            on_error: what to do after the last attempt. `stop` ends the consumer and raises the error; `skip` counts
                the event as handled; `dead_letter` does not, so that the subscription's dead-letter policy applies. Or
                a function that returns one of these for an event and its error.

        Raises:
            ClientError: going on is of no use, as the subscription does not exist or may not be read.
            Exception: that of the handler.
        """
        failures.check_on_error(on_error)
        if not 1 <= concurrency <= CONCURRENCY_MAX or attempts < 1:
            raise ValueError(f"concurrency must be between 1 and {CONCURRENCY_MAX}, and attempts at least 1")
        self._reader.needs_policy = on_error == failures.DEAD_LETTER
        workers = Workers(self._exchange, self._reader, self._tell, handler, attempts, on_error)
        self._start()
        self._working = _spawned(workers, concurrency)
        try:
            self._exchange.until_stopping()
        finally:
            self._end()
        self._raise()

    # --- Beginning and end ---

    def stop(self) -> None:
        """Hand out no more events; those in hand are finished and committed. Does not wait.

        May be called by other threads and by signal handlers; in asyncio by tasks and handlers of the loop.
        """
        self._exchange.stop()

    def flush(self, timeout_s: float = 30) -> bool:
        """Wait until all that is handled is committed, at most `timeout_s` seconds; returns whether it is."""
        return self._exchange.flush(timeout_s)

    @property
    def subscription_id(self) -> str:
        """The id of the subscription; empty until it is known."""
        return self._exchange.subscription_id

    def _start(self) -> None:
        if self._ended:
            raise RuntimeError("This consumer has ended; make another one with `client.subscription`.")
        if self._reading is None:
            self._reading = concurrency.spawn(self._reader.run, "rioni-stream")
            self._committing = concurrency.spawn(self._committer.run, "rioni-commits")

    def _end(self) -> None:
        """Let events in hand be finished, commit them, and close the stream; blocks up to `stop_timeout_s`."""
        if self._ended:
            return
        self._ended = True
        timeout_s = self._options.stop_timeout_s
        until_s = concurrency.now() + timeout_s
        self._exchange.stop()
        self._join(self._working, until_s)
        self._put_down()
        self._tell_revoked()
        self._reader.interrupt()
        self._join([self._reading], until_s)
        self._exchange.end(max(until_s - concurrency.now(), 0.0))
        self._join([self._committing], until_s)

    def _join(self, tasks: Sequence[concurrency.Task | None], until_s: float) -> None:
        for task in tasks:
            if task is not None and not concurrency.join(task, max(until_s - concurrency.now(), 0.0)):
                concurrency.cancel(task)
                concurrency.join(task, CANCELLED_S)

    def _tell_revoked(self) -> None:
        while (item := self._exchange.take_rest()) is not None:
            try:
                self._tell(item)
            except Exception:  # noqa: BLE001 - the rest of the end must not depend on it
                _LOG.exception("The application failed to handle the loss of %s", item.progress.partition)
            finally:
                self._exchange.release(item)

    def _tell(self, item: Item) -> None:
        partition = item.progress.partition
        if isinstance(item, Assigned):
            if self._options.on_assigned is not None:
                concurrency.invoke(self._options.on_assigned, partition)
        elif not isinstance(item, EventBatch) and self._options.on_revoked is not None:
            concurrency.invoke(self._options.on_revoked, partition, item.reason)

    def _raise(self) -> None:
        if self._exchange.failure is not None:
            raise self._exchange.failure


def _spawned(workers: Workers, count: int) -> list[concurrency.Task]:
    return [concurrency.spawn(workers.run, f"rioni-handler-{number}") for number in range(count)]
