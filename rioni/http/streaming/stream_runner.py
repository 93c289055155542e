"""Runs a stream: executes its state machine's decisions, waits, and yields the response body.

A stream is an iterator of bytes that a WSGI server can use as it is; it runs in the greenlet of its request. The first
item may be empty: gunicorn sends the headers when it gets the first item, whatever it holds. So the resource sets no
Content-Length, and hands the stream over as the body without looking into it.

A client that stops reading blocks the server's write, and with it the stream; the server's deadline on its sockets ends
that, then the server calls `close`.
"""

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Self

import structlog

from rioni.config.logs import FailureLog
from rioni.domain.errors import NotFound, RioniError, Unavailable
from rioni.domain.ports.host import Waiter
from rioni.domain.streaming.messages import (
    Close,
    Commit,
    End,
    Fetch,
    Fetched,
    Input,
    NewEvents,
    Output,
    Reason,
    Release,
    Run,
    Send,
    Tick,
    VisibilityChanged,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.session import StreamMachine
from rioni.domain.subscriptions.dead_letters import Policy
from rioni.domain.timelines.position import BEFORE_FIRST, EventTypePartition, TimelinePosition
from rioni.http.streaming.frames import FrameWriter
from rioni.http.streaming.stream_context import PartitionTail, StreamClient, StreamPorts, topic_key


WRITE_BYTES = 262_144
"""Batches that are ready at the same time are written together, up to about this length."""

CHECK_CLIENT_EVERY_S = 1.0
"""Interval at which an idle stream checks its client's connection and permissions, unless there are many streams."""

CHECKS_PER_S_MAX = 1_000
"""PERF: checks of idle streams in one worker a second, which take a third of a core: with more streams each is checked
less often."""

CHECK_CLIENT_BUSY_EVERY_S = 0.05
"""Interval at which a stream that never waits checks its client's connection and permissions."""

CHECK_EVENTS_EVERY_S = 5.0
"""How often a stream looks for new events and assignments without having been woken: notifications may be lost."""

_log = structlog.get_logger(__name__)
_failures = FailureLog(_log)

_FAILED = "A stream failed"
_COORDINATION, _EVENTS = "coordination", "events"
"""The purposes of a stream's calls to stores: a failure is logged as over when any stream succeeds with the same
purpose."""


class StreamRunner(ABC):
    """Base class of the streams of both APIs."""

    def __init__(
        self,
        parameters: StreamParameters,
        start: Mapping[EventTypePartition, TimelinePosition] | None,
        frames: FrameWriter,
        partitions: Collection[EventTypePartition],
        ports: StreamPorts,
        client: StreamClient,
        keys: Iterable[str],
        policy: Policy | None = None,
    ) -> None:
        self._visibility = client.visibility()
        self._machine = StreamMachine(parameters, ports.clock.monotonic(), start, self._visibility, policy)
        self._frames, self._ports, self._client = frames, ports, client
        self._outputs: list[Output] = []
        self._unsent: deque[bytes] = deque()
        """Pieces of the batches that were written last, of at most the memory of the stream."""
        self._fetches: dict[EventTypePartition, Fetch] = {}
        self._started = self._done = self._closed = self._client_gone = False
        self._needs = _COORDINATION
        """The purpose of the current call to a store."""
        self._tails = self._current_tails({key.event_type for key in partitions})
        self._keys = (*keys, *client.keys)
        self._waiter = self._new_waiter()
        self._checked_client_at_s = self._checked_connection_at_s = self._check_events_at_s = -math.inf
        self._memory_bytes_max = parameters.memory_bytes_max
        ports.memory.open()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Wait for the next batches; the first item precedes all of them, and is mostly empty."""
        if not self._started:
            self._started = True
            self._client.on_begin()
            return self._frames.begin()
        # A stream that always has something to send must let other greenlets run.
        time.sleep(0)
        if not self._unsent:
            self._unsent.extend(self._advance())
        if not self._unsent:
            self.close()
            raise StopIteration
        pieces, size = [], 0
        while self._unsent and size < WRITE_BYTES:
            pieces.append(self._unsent.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)

    def close(self) -> None:
        """End the stream; the session of a client that has gone stays while it may still commit."""
        if self._closed:
            return
        self._closed = True
        self._checked_client_at_s = self._checked_connection_at_s = -math.inf
        with contextlib.ExitStack() as leaving:
            # In reverse order: a client that sees the partitions free must also get a slot.
            for leave in (self._leave, self._client.on_close, self._waiter.close, self._ports.memory.close):
                leaving.callback(leave)
            while self._advance():
                pass

    @abstractmethod
    def _check_events(self) -> None:
        """Read changes of assignment and commits."""

    @abstractmethod
    def _commit(self, cursors: Sequence[tuple[EventTypePartition, TimelinePosition]]) -> None:
        """Commit for the client."""

    @abstractmethod
    def _release(self, partitions: Collection[EventTypePartition]) -> None:
        """Hand partitions over."""

    @abstractmethod
    def _owns_partitions(self) -> bool:
        """Whether this stream certainly still owns the partitions."""

    @abstractmethod
    def _retire(self) -> None:
        """Give way to the next stream, as the client has gone; only events already sent can still be committed."""

    @abstractmethod
    def _leave(self) -> None:
        """End the session."""

    # --- The loop ---

    def _advance(self) -> Sequence[bytes]:
        """Advance until there is something to write, in pieces; empty at the end."""
        try:
            while not self._done:
                if data := self._execute():
                    return data
                if not self._done:
                    self._wait()
        except NotFound:
            return self._fail(Reason.EVENT_TYPE_DELETED)
        except RioniError as ex:
            # The success of other streams shows that an outage is over, but nothing about an error of this stream
            # alone.
            _failures.failed(_FAILED, ex, of=self._needs if isinstance(ex, Unavailable) else "")
            return self._fail(Reason.FAILURE, str(ex))
        except Exception as ex:  # noqa: BLE001 - on any error the client gets a message and the session ends
            _failures.failed(_FAILED, ex)
            return self._fail(Reason.FAILURE)
        return ()

    def _fail(self, reason: Reason, detail: str = "") -> Sequence[bytes]:
        self._outputs.clear()
        self._fetches.clear()
        try:
            self._step(End(reason, detail))
            return self._execute()
        finally:
            self._done = True

    def _step(self, message: Input) -> None:
        filtered, expired_unread = self._machine.filtered, self._machine.expired_unread
        self._machine.memory_bytes_max = min(self._memory_bytes_max, self._ports.memory.share())
        self._outputs += self._machine.step(message, self._ports.clock.monotonic())
        if count := self._machine.filtered - filtered:
            self._client.on_filtered(count)
        if (wanted := self._visibility.wanted) is not None and (count := wanted.take_failures()):
            self._client.on_filter_failures(count)
        if count := self._machine.expired_unread - expired_unread:
            self._client.on_expired_unread(count)

    def _execute(self) -> Sequence[bytes]:
        """Execute the decisions until there is something to write, or none is left."""
        lines: list[bytes] = []
        size = 0
        while size < WRITE_BYTES and not self._done:
            if not self._outputs:
                if lines or not self._fetches:
                    break
                self._fetch()
                continue
            match self._outputs.pop(0):
                case Send(slices=slices) if slices and not self._owns_partitions():
                    # If the stream is already ending, keep the original reason.
                    self._outputs = [each for each in self._outputs if _announces_end(each)]
                    self._fetches.clear()
                    self._step(End(Reason.SESSION_ENDED))
                case Send() as send:
                    pieces = self._frames.write(send)
                    written = sum(map(len, pieces))
                    lines += pieces
                    size += written
                    if send.slices:
                        events = sum([part.stop - part.start for part in send.slices])
                        self._client.on_batch(send.partition.event_type, events, written)
                case Release() as release if lines:
                    # Send a partition's last messages before giving the partition up.
                    self._outputs.insert(0, release)
                    break
                case output:
                    self._do(output)
        return lines

    def _do(self, output: Output) -> None:
        match output:
            case Fetch() as fetch:
                self._fetches[fetch.partition] = fetch
            case Commit(cursors):
                self._commit(cursors)
            case Release(partition):
                # PERF: together, for each change wakes all streams: 300 hand-overs one by one took more than a minute.
                partitions = [partition]
                while self._outputs and isinstance(following := self._outputs[0], Release):
                    partitions.append(following.partition)
                    del self._outputs[0]
                self._release(partitions)
            case Close(reason):
                # Its session was kept for commits, until another stream began.
                given_way = self._client_gone and reason is Reason.SESSION_ENDED
                self._client.on_end(Reason.CLIENT_GONE if given_way else reason)
                self._done = True

    def _fetch(self) -> None:
        fetches, self._fetches = self._fetches, {}
        runs = []
        self._needs = _EVENTS
        for fetch in fetches.values():
            tail, number = self._tails[fetch.partition.event_type], int(fetch.partition.partition)
            prefetch = partial(_places_in, fetch.partition.event_type, fetches)
            order, chunks = tail.read(number, fetch.after, fetch.bytes_max, prefetch)
            begun = TimelinePosition(order, BEFORE_FIRST)
            expired_unread = tail.timelines.distance(number, fetch.after, begun) if order > fetch.after.order else 0
            runs.append(Run(fetch, order, chunks, expired_unread))
        self._needs = _COORDINATION
        _failures.succeeded(_FAILED, of=_EVENTS)
        self._step(Fetched(runs))
        if self._outputs and isinstance(self._outputs[0], Fetch):
            # All events were hidden: a stream that skips many of them must let other greenlets run.
            time.sleep(0)
        if self._ports.clock.monotonic() >= self._checked_client_at_s + CHECK_CLIENT_BUSY_EVERY_S:
            self._check_client(woken=self._waiter.wait(0))

    def _wait(self) -> None:
        every_s = max(CHECK_CLIENT_EVERY_S, self._ports.memory.streams / CHECKS_PER_S_MAX)
        until_s = min(self._machine.deadline_s(), self._checked_connection_at_s + every_s)
        self._check_client(woken=self._waiter.wait(max(0.0, until_s - self._ports.clock.monotonic())))

    def _check_client(self, *, woken: bool) -> None:
        self._checked_client_at_s = now_s = self._ports.clock.monotonic()
        end = self._client.ended()
        switched = end is None and self._follow_timelines()
        if end is None and (visibility := self._client.visibility()) != self._visibility:
            self._visibility = visibility
            self._step(VisibilityChanged(visibility))
        # First of all, so that there is a partition on which to report why the stream ends.
        if woken or switched or now_s >= self._check_events_at_s:
            self._check_events_at_s = now_s + CHECK_EVENTS_EVERY_S
            self._check_events()
            _failures.succeeded(_FAILED, of=_COORDINATION)
        else:
            self._step(Tick())
        if end:
            self._step(end)
        # PERF: not at each wake-up, which would cost a tenth of sending an event to many streams.
        if now_s >= self._checked_connection_at_s + (CHECK_CLIENT_BUSY_EVERY_S if woken else CHECK_CLIENT_EVERY_S):
            self._checked_connection_at_s = now_s
            if not self._client_gone and (self._closed or self._client.is_disconnected()):
                self._client_gone = True
                self._step(End(Reason.CLIENT_GONE))
                if self._machine.deadline_s() < math.inf:
                    self._retire()

    def _new_waiter(self) -> Waiter:
        return self._ports.signals.watch({*self._keys, *(topic_key(tail.timelines) for tail in self._tails.values())})

    def _current_tails(self, event_types: Iterable[str]) -> dict[str, PartitionTail]:
        return {name: self._ports.tails.of(self._ports.timelines(name)) for name in event_types}

    def _follow_timelines(self) -> bool:
        """Watch new timelines; return whether there are any, as their first events may already have arrived."""
        if all(self._ports.timelines(name) is tail.timelines for name, tail in self._tails.items()):
            return False
        self._tails = self._current_tails(self._tails)
        waiter, self._waiter = self._waiter, self._new_waiter()
        waiter.close()
        return True

    def _new_events(self, partitions: Collection[EventTypePartition]) -> NewEvents:
        newest = {name: self._tails[name].newest() for name in {partition.event_type for partition in partitions}}
        return NewEvents({key: newest[key.event_type][int(key.partition)] for key in partitions})


def _places_in(event_type: str, fetches: Mapping[EventTypePartition, Fetch]) -> dict[int, TimelinePosition]:
    """The places after which events of an event type are fetched, by the number of the partition."""
    return {int(key.partition): fetch.after for key, fetch in fetches.items() if key.event_type == event_type}


def _announces_end(output: Output) -> bool:
    return isinstance(output, Close) or (isinstance(output, Send) and bool(output.info) and not output.slices)
