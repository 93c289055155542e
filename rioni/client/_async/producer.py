"""A producer: takes events one by one, and publishes them in batches in the background."""

import logging
import os
import time
from collections.abc import Iterable
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Any, Self

from rioni.client import encoding
from rioni.client._async import concurrency
from rioni.client._async.publishing import BatchSender, Publishing
from rioni.client._async.send_buffer import GRACE_S, AsyncDelivery, ProducerBatch, SendBuffer
from rioni.client.errors import ClientError, EventsNotStored, ProducerClosed, TimedOut
from rioni.client.keywords import ProducerSettings


FAILURES_MAX = 1_000
"""Failed events that are remembered until `flush`; of others the number."""
STOP_S = 0.2
"""Seconds that senders without work may take to end; threads whose broker does not answer end later."""

_log = logging.getLogger("rioni.client")


class AsyncProducer:
    """Publishes events of one event type in batches.

    `send` puts an event into a buffer. A batch is sent when it is full, or `linger_s` after its first event. Results
    come through the `AsyncDelivery` that `send` returns, or the function `on_result`; failures that were not examined
    there are raised by `flush` and `close`.

    With one batch in flight, events are stored in the order in which they were sent. With several, the order is kept
    among events with equal `key`; without `key` there is no order between batches.

    Use it as a context manager, or close it. It may be used by several tasks at the same time.
    """

    def __init__(self, publishing: Publishing, event_type: str, settings: ProducerSettings) -> None:
        """Start nothing yet; see `AsyncClient.producer`."""
        self.event_type = event_type
        self._publishing, self._timeout_s, self._in_flight = publishing, settings.timeout_s, settings.in_flight
        self._key, self._on_result = settings.key, settings.on_result
        self._lanes = 1 if settings.key is None else settings.in_flight
        self._buffer = SendBuffer(self._lanes, settings)
        self._stopping = concurrency.Event()
        self._sender = BatchSender(
            publishing,
            event_type,
            idempotent=settings.idempotent,
            compression=settings.compression,
            headers=settings.headers or {},
            sleep=self._pause,
        )
        self._mutex = concurrency.Mutex()
        self._add_metadata: bool | None = None
        self._tasks: list[concurrency.Task] = []
        self._failures: list[AsyncDelivery] = []
        self._further_failures = 0
        self._process = os.getpid()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, ex: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError as failure:
            if kind is None:
                raise
            _log.error("%s", failure)

    async def send(self, event: Any, *, timeout_s: float | None = None) -> AsyncDelivery:
        """Put an event into the buffer; blocks while that is full, and the first time to ask for the category.

        Args:
            event: a mapping, a msgspec struct, a dataclass, a Pydantic model, or JSON as bytes or text. It gets
                `metadata` as in `AsyncClient.publish`.
            timeout_s: how long to wait for room, or for the category; by default `timeout_s` of the producer.

        Returns:
            The delivery, for the result of this event; it may be ignored.

        Raises:
            TimedOut: the buffer stayed full; the event was not taken over.
            ProducerClosed: the producer was closed.
            TypeError, ValueError: the event can't be written as a JSON object; nor was this event taken over. The text
                names the path of the value that can't.
            ClientError: the category of the event type could not be found out.
        """
        self._check_process()
        if self._add_metadata is None:
            await self._start(self._timeout_s if timeout_s is None else timeout_s)
        encoded = encoding.encode_event(event, add_metadata=bool(self._add_metadata))
        lane = 0 if self._key is None else hash(self._key(event)) % self._lanes
        delivery = self._buffer.add(lane, encoded)
        if delivery is None:
            deadline_s = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
            while delivery is None:
                if not await self._buffer.wait_for_room(max(0.0, deadline_s - time.monotonic())):
                    full = "The buffer is full: events come faster than the broker stores them"
                    raise TimedOut(self._publishing.why(full), sent=False)
                delivery = self._buffer.add(lane, encoded)
        return delivery

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all events that were put in so far; blocks until each is stored or has failed.

        Args:
            timeout_s: how long to wait; by default until all events have a result.

        Raises:
            TimedOut: not all results are known in time; events are sent further.
            EventsNotStored: events failed since the last time, and the application did not examine their errors.
        """
        self._check_process()
        timeout_s = self._timeout_s + GRACE_S if timeout_s is None else timeout_s
        if not await self._wait(self._buffer.send_now(), timeout_s):
            late = f"Events of {self.event_type} have no result after {timeout_s:.3g} s"
            raise TimedOut(self._publishing.why(late))
        self._raise_failures()

    async def close(self, timeout_s: float | None = None) -> None:
        """Take no more events, and wait until each is stored or has failed; closing again does nothing.

        Args:
            timeout_s: how long to wait, by default until all events have a result; those without a result then fail.

        Raises:
            EventsNotStored: events failed, and the application did not examine their errors.
        """
        if self._process != os.getpid():
            # The events belong to the process that made the producer.
            return
        timeout_s = self._timeout_s + GRACE_S if timeout_s is None else timeout_s
        self._buffer.close()
        if not await self._wait(self._buffer.send_now(), timeout_s):
            late = f"The producer was closed, and the event had no result after {timeout_s:.3g} s"
            self._abandon(TimedOut(self._publishing.why(late)))
            for task in self._tasks:
                concurrency.cancel(task)
        deadline_s = time.monotonic() + STOP_S
        for task in self._tasks:
            await concurrency.join(task, max(0.0, deadline_s - time.monotonic()))
        self._tasks = []
        concurrency.not_at_exit(self._close_at_exit)
        self._raise_failures()

    async def _close_at_exit(self, timeout_s: float) -> None:
        try:
            await self.close(timeout_s)
        except ClientError as ex:
            _log.error("%s", ex)

    async def _start(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        add_metadata = await self._publishing.has_metadata(self.event_type, deadline_s=deadline_s)
        with self._mutex:
            if self._add_metadata is None and not self._buffer.closed:
                # A request has the trace context of its events, not that of the first one.
                context = Context()
                for number in range(self._in_flight):
                    run = partial(self._run, number % self._lanes)
                    self._tasks.append(context.run(concurrency.spawn, run, "rioni producer"))
                concurrency.at_exit(self._close_at_exit)
            self._add_metadata = add_metadata

    async def _run(self, lane: int) -> None:
        """Send the batches of a lane; one of the tasks of the producer."""
        finished = False
        try:
            while (batch := await self._buffer.next(lane)) is not None:
                await self._deliver(batch)
            finished = True
        finally:
            if not finished:
                self._abandon(ProducerClosed("The producer was not closed before its event loop ended"))

    async def _deliver(self, batch: ProducerBatch) -> None:
        try:
            await self._sender.send(batch)
        except ClientError as ex:
            batch.fail_rest(ex)
        except Exception as ex:  # noqa: BLE001 - such as that of a closed client; nothing may be lost
            _log.exception("a batch could not be sent")
            batch.fail_rest(ClientError(f"{self.event_type}: {ex!r}"))
        self._settle(batch)

    async def _pause(self, seconds: float) -> None:
        """Wait between two attempts; raises if the producer is stopped meanwhile."""
        if await concurrency.wait(self._stopping, seconds):
            raise ProducerClosed("The producer was closed before the event was stored")

    def _settle(self, batch: ProducerBatch) -> None:
        if not self._buffer.settle(batch):
            return
        if self._on_result is not None:
            for index in range(len(batch.events)):
                try:
                    self._on_result(AsyncDelivery(batch, index))
                except Exception:  # noqa: BLE001 - it is the application's
                    _log.exception("on_result failed")
        elif batch.errors:
            _log.warning(
                "%s: %d of %d events were not stored: %s",
                self.event_type,
                len(batch.errors),
                len(batch.events),
                next(iter(batch.errors.values())),
            )
            with self._mutex:
                self._failures += (AsyncDelivery(batch, index) for index in batch.errors)
                self._further_failures += max(0, len(self._failures) - FAILURES_MAX)
                del self._failures[FAILURES_MAX:]
        batch.done.set()

    def _abandon(self, error: ClientError) -> None:
        """Let all events fail that have no result."""
        self._buffer.close()
        for batch in self._buffer.send_now():
            batch.fail_rest(error)
            self._settle(batch)
        self._stopping.set()

    async def _wait(self, batches: Iterable[ProducerBatch], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        known = [await concurrency.wait(batch.done, max(0.0, deadline_s - time.monotonic())) for batch in batches]
        return all(known)

    def _raise_failures(self) -> None:
        with self._mutex:
            failures, further = self._failures, self._further_failures
            self._failures, self._further_failures = [], 0
        unseen = [(delivery.event, error) for delivery in failures if not delivery.seen and (error := delivery.error)]
        if unseen or further:
            raise EventsNotStored(self.event_type, len(unseen) + further, unseen)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise ProducerClosed(
                "The producer belongs to the process that forked this one; make a new client and producer"
            )
