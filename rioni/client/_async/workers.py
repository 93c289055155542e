"""Handles the events of a consumer with a handler of the application."""

import logging
from collections.abc import Callable
from typing import Any

from rioni.client._async import concurrency
from rioni.client._async.exchange import Exchange
from rioni.client._async.stream_reader import StreamReader
from rioni.client.consumption import failures
from rioni.client.consumption.events import Event, EventBatch


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
        exchange: Exchange,
        reader: StreamReader,
        tell: Callable[..., Any],
        handler: Callable[..., Any],
        attempts: int,
        on_error: failures.OnError,
    ) -> None:
        self._exchange, self._reader, self._tell = exchange, reader, tell
        self._handler, self._attempts, self._on_error = handler, attempts, on_error

    async def run(self) -> None:
        """Handle what there is until it is time to stop."""
        try:
            while (item := await self._exchange.take()) is not None:
                try:
                    if isinstance(item, EventBatch):
                        await self._handle_batch(item)
                    else:
                        await self._tell(item)
                finally:
                    self._exchange.release(item)
        except (Exception, SystemExit) as ex:  # noqa: BLE001 - the consumer raises it
            self._exchange.fail(ex)
        finally:
            # A cancelled worker ends all others.
            self._exchange.stop()

    async def _handle_batch(self, batch: EventBatch[Any]) -> None:
        index, handles_itself = batch.handled, self._exchange.options.commits_itself
        while index < len(batch) and not batch.dropped:
            if not await self._handle(Event(batch.json[index], batch, index), batch):
                return
            index += 1
            if handles_itself:
                batch.handled = index = max(index, batch.handled)

    async def _handle(self, event: Event[Any], batch: EventBatch[Any]) -> bool:
        """Handle an event; returns whether that is done."""
        for attempt in range(1, self._attempts + 1):
            try:
                await concurrency.invoke(self._handler, event)
            except Exception as ex:  # noqa: BLE001 - the application says what to do with its errors
                if batch.dropped:
                    return False
                if attempt == self._attempts:
                    return await self._failed(event, batch, ex)
                _LOG.warning("Attempt %d to handle %s failed: %r", attempt, _name(event), ex)
                await self._exchange.pause(failures.retry_wait_s(attempt))
            else:
                return True
            if batch.dropped:
                return False
        raise AssertionError

    async def _failed(self, event: Event[Any], batch: EventBatch[Any], ex: Exception) -> bool:
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
            await self._reader.explain(session, failures.reason_of(event, ex))
            self._reader.interrupt(session)
        return False


def _name(event: Event[Any]) -> str:
    """The name of an event in logs; of its contents it has nothing but the id."""
    try:
        eid = event.metadata.eid
    except Exception:  # noqa: BLE001 - the handler has complained of it
        eid = None
    return f"event {eid or 'without id'} of {event.event_type}, partition {event.partition}"
