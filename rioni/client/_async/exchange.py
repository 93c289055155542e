"""The state that the reader, the committer and the handlers of a consumer share."""

from typing import Any

from rioni.client._async import concurrency
from rioni.client.consumption.event_values import Types
from rioni.client.consumption.events import EventBatch, StreamSession
from rioni.client.consumption.lanes import Item
from rioni.client.consumption.options import Options
from rioni.client.consumption.state import ConsumptionState
from rioni.wire.events import Batch


WAIT_MAX_S = 60.0
"""The most seconds to wait until the next check."""


class ConsumerExchange:
    """The state of a consumer, and what can be waited for."""

    def __init__(self, options: Options, types: Types) -> None:
        self.options = options
        self.state = ConsumptionState(options, types, self._commit)
        self.shared = concurrency.Shared()
        self.work = concurrency.Condition(self.shared)
        """There may be something to handle."""
        self.commits = concurrency.Condition(self.shared)
        """There may be something to commit, or it is time to end."""
        self.changes = concurrency.Condition(self.shared)
        """Something was committed, or it is time to stop."""
        self.commits_at_s = 0.0
        """When the committer checks again."""
        self.stopping = False
        """Whether nothing more is to be handled."""
        self.ending = False
        """Whether no stream is open any more, and the last commits are due."""
        self.end_by_s = 0.0
        """The time at which all attempts end, once it is ending."""
        self.subscription_id = ""
        """The id of the subscription; empty until it is known."""
        self.failure: BaseException | None = None
        """Why the consumer can't go on."""

    def stop(self) -> None:
        """Have everything come to its end; may be called from signal handlers."""
        with self.shared:
            if not self.stopping:
                self.stopping = True
                self.state.stop()
            self.work.notify_all()
            self.changes.notify_all()

    def fail(self, ex: BaseException) -> None:
        """Stop, since something can't be mended; the first such error counts."""
        with self.shared:
            if self.failure is None:
                self.failure = ex
            self.stop()

    def end(self, timeout_s: float) -> None:
        """Have the last commits made, within `timeout_s` seconds."""
        with self.shared:
            now_s = concurrency.now()
            self.state.end(now_s)
            self.ending, self.end_by_s = True, now_s + timeout_s
            self.commits.notify_all()

    def received(self, session: StreamSession, batch: Batch) -> None:
        """Take the batch that a stream has brought."""
        with self.shared:
            due_at_s = self.state.received(session, batch, concurrency.now())
            self.work.notify(self.state.ready)
            if due_at_s < self.commits_at_s:
                self.commits.notify_all()

    async def take(self) -> Item | None:
        """Wait for the next thing to do, which is in hand until `release`; None when it is time to stop."""
        # PERF: tasks that always find something would never let others read and commit.
        await concurrency.give_way()
        with self.shared:
            while not self.stopping:
                if (item := self.state.take()) is not None:
                    return item
                await self.work.wait(WAIT_MAX_S)
        return None

    def take_rest(self) -> Item | None:
        """Return the next item that the application has yet to be notified of when it is time to stop, or None."""
        with self.shared:
            return self.state.take()

    async def until_stopping(self) -> None:
        """Wait until it is time to stop."""
        with self.shared:
            while not self.stopping:
                await self.changes.wait(WAIT_MAX_S)

    def release(self, item: Item) -> None:
        """Note that nothing of a partition is in hand any more."""
        with self.shared:
            self.state.release(item)
            # PERF: waking the committer for each batch would cost a third of the time of small ones. Others that wait
            # for work need no wake-up, as the caller is about to take the batch.
            if self.state.progress_due_at_s(item.progress) < self.commits_at_s:
                self.commits.notify_all()

    async def pause(self, seconds: float) -> None:
        """Wait, unless it is time to stop."""
        until_s = concurrency.now() + seconds
        with self.shared:
            while not self.stopping and (left_s := until_s - concurrency.now()) > 0:
                await self.changes.wait(left_s)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all that is handled is committed, at most `timeout_s` seconds; return whether it is."""
        until_s = concurrency.now() + timeout_s
        with self.shared:
            self.state.urgent = True
            self.commits.notify_all()
            while not (settled := self.state.settled) and (left_s := until_s - concurrency.now()) > 0:
                await self.changes.wait(left_s)
            self.state.urgent = self.ending
        return settled

    def _commit(self, batch: EventBatch[Any], count: int) -> None:
        with self.shared:
            if self.state.handled(batch, count):
                self.commits.notify_all()

    def changed(self) -> None:
        """Something was committed, refused or has ended; call it inside of the shared state."""
        self.work.notify_all()
        self.commits.notify_all()
        self.changes.notify_all()
