"""Performs a stream: does what its state machine decides, waits, and yields the body of the response.

A stream is an iterator of bytes that a WSGI server can use as it is; it runs in the greenlet of its request. The first
item is empty: gunicorn sends the headers when it gets the first item, whatever it holds. So the resource sets no
Content-Length, and hands the stream over as the body without looking into it.

A client that stops reading blocks the server's write, and with it the stream; the server's deadline on its sockets ends
that, then the server calls `close`.
"""

import logging
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from rioni.domain.cursor import Place, parse_offset
from rioni.domain.errors import NotFound, RioniError
from rioni.domain.ports import Clock, Coordinator, EventStore, EventTypePartition, Signals, Topology
from rioni.domain.streaming.messages import (
    Arrived,
    Close,
    Coordinated,
    End,
    Fetch,
    Fetched,
    Holding,
    Input,
    Output,
    Reason,
    Release,
    Run,
    Send,
    Tick,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.session import StreamMachine
from rioni.domain.timeline import FIRST_ORDER
from rioni.http.streaming.frames import Frames, random_token


WRITE_BYTES = 262_144
"""Batches that are ready at the same time are written together, up to about this length."""

ATTEND_EVERY_S = 1.0
"""How often a stream looks at its client's socket and whether it may go on, when nothing wakes it."""

ATTEND_BUSY_EVERY_S = 0.05
"""The same for a stream that never waits."""

LOOK_EVERY_S = 5.0
"""How often a stream looks for new events and assignments without having been woken: notifications may be lost."""

TCP_ESTABLISHED = 1

_log = logging.getLogger(__name__)


class Source(NamedTuple):
    """Where the events of a partition lie."""

    topic: str
    partition: int
    order: int
    """Of the timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPorts:
    """What every stream of a process works with."""

    clock: Clock
    store: EventStore
    signals: Signals
    coordinator: Coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What a stream asks about its client; all of it at every wake-up, so it must be cheap."""

    gone: Callable[[], bool]
    """Whether nobody reads any more."""
    ended: Callable[[], End | None] = lambda: None
    """Why the broker wants the stream to end, if it does: access lost, something deleted, shutdown."""
    keys: Collection[str] = ()
    """What to watch besides events and assignments, so that `ended` is asked at once."""
    on_events: Callable[[int], None] = lambda _count: None
    """Told how many events were written, batch by batch."""
    on_close: Callable[[], None] = lambda: None
    """Called once when everything is over."""


def client_gone(connection: socket.socket) -> Callable[[], bool]:
    """Watch a client through its TCP connection: gone is also who only says that nothing more will come.

    PERF: the state of the connection costs 1 us and never blocks, as a look at what there is to receive does under
    gevent.
    """

    def gone() -> bool:
        try:
            return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED
        except OSError:
            return True

    return gone


class _Stream(ABC):
    """What the streams of both APIs have in common."""

    def __init__(
        self,
        machine: StreamMachine,
        frames: Frames,
        sources: Mapping[EventTypePartition, Source],
        ports: StreamPorts,
        client: Client,
        keys: Iterable[str],
    ) -> None:
        self._machine, self._frames, self._sources, self._ports, self._client = machine, frames, sources, ports, client
        self._gone = client.gone
        self._outputs: deque[Output] = deque()
        self._fetches: dict[EventTypePartition, Fetch] = {}
        self._begun = self._done = self._left = False
        topics = (f"topic:{source.topic}" for source in sources.values())
        self._watch = ports.signals.watch({*keys, *topics, *client.keys})
        self._attend_at_s = self._look_at_s = ports.clock.monotonic()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Wait for the next batches; the first item is empty."""
        if not self._begun:
            self._begun = True
            return b""
        # Who always has something to send must let others run too.
        time.sleep(0)
        if data := self._advance():
            return data
        self.close()
        raise StopIteration

    def close(self) -> None:
        """End the stream; the session of a client that has gone stays as long as it may still commit."""
        if self._left:
            return
        self._left = True
        self._gone = lambda: True
        self._attend_at_s = self._ports.clock.monotonic()
        try:
            while self._advance():
                pass
        finally:
            self._watch.close()
            self._leave()
            self._client.on_close()

    @abstractmethod
    def _look(self) -> None:
        """Find out what has changed."""

    @abstractmethod
    def _release(self, partition: EventTypePartition) -> None:
        """Hand a partition over."""

    @abstractmethod
    def _leave(self) -> None:
        """End the session."""

    # --- the loop ---

    def _advance(self) -> bytes:
        """Go on until there is something to write; nothing is the end."""
        try:
            while not self._done:
                if data := self._perform():
                    return data
                if not self._done:
                    self._wait()
        except NotFound:
            return self._fail(Reason.EVENT_TYPE_DELETED)
        except RioniError as ex:
            _log.exception("A stream failed")
            return self._fail(Reason.FAILURE, str(ex))
        except Exception:  # noqa: BLE001 - whatever happens, the client is told and the session ends
            _log.exception("A stream failed")
            return self._fail(Reason.FAILURE)
        return b""

    def _fail(self, reason: Reason, detail: str = "") -> bytes:
        self._outputs.clear()
        self._fetches.clear()
        try:
            self._step(End(reason, detail))
            return self._perform()
        finally:
            self._done = True

    def _step(self, message: Input) -> None:
        self._outputs += self._machine.step(message, self._ports.clock.monotonic())

    def _perform(self) -> bytes:
        """Do what was decided until something is to be written, or nothing is left to do."""
        lines: list[bytes] = []
        size = 0
        while size < WRITE_BYTES and not self._done:
            if not self._outputs:
                if lines or not self._fetches:
                    break
                self._fetch()
                continue
            match self._outputs.popleft():
                case Send() as send:
                    lines.append(self._frames.write(send))
                    size += len(lines[-1])
                    if send.slices:
                        self._client.on_events(sum([part.stop - part.start for part in send.slices]))
                case Fetch() as fetch:
                    self._fetches[fetch.partition] = fetch
                case Release() as release:
                    if lines:
                        # What is said about a partition is said while it is still this stream's.
                        self._outputs.appendleft(release)
                        break
                    self._release(release.partition)
                case Close():
                    self._done = True
        return b"".join(lines)

    def _fetch(self) -> None:
        fetches, self._fetches = self._fetches, {}
        runs = []
        for fetch in fetches.values():
            topic, partition, order = self._sources[fetch.partition]
            chunks = self._ports.store.read(topic, partition, fetch.after.position + 1, fetch.bytes_max)
            runs.append(Run(fetch, order, chunks))
        self._step(Fetched(runs))
        if self._ports.clock.monotonic() >= self._attend_at_s - ATTEND_EVERY_S + ATTEND_BUSY_EVERY_S:
            self._attend(woken=self._watch.wait(0))

    def _wait(self) -> None:
        until_s = min(self._machine.deadline_s(), self._attend_at_s)
        self._attend(woken=self._watch.wait(max(0.0, until_s - self._ports.clock.monotonic())))

    def _attend(self, *, woken: bool) -> None:
        now_s = self._ports.clock.monotonic()
        self._attend_at_s = now_s + ATTEND_EVERY_S
        # First of all, so that there is a partition to say on why the stream ends.
        if woken or now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._look()
        else:
            self._step(Tick())
        if end := self._client.ended():
            self._step(end)
        if self._gone():
            self._step(End(Reason.CLIENT_GONE))

    def _arrived(self, partitions: Iterable[EventTypePartition]) -> Arrived:
        sources = {partition: self._sources[partition] for partition in partitions}
        bounds = {topic: self._ports.store.bounds(topic) for topic in {source.topic for source in sources.values()}}
        return Arrived(
            {key: Place(order, bounds[topic][partition].newest) for key, (topic, partition, order) in sources.items()}
        )


class LowLevelStream(_Stream):
    """A stream of `GET /event-types/{name}/events` (consumption contract 4)."""

    def __init__(
        self,
        parameters: StreamParameters,
        start: Mapping[EventTypePartition, Place],
        sources: Mapping[EventTypePartition, Source],
        ports: StreamPorts,
        client: Client,
    ) -> None:
        """Begin.

        Args:
            parameters: those of a low-level stream.
            start: the partitions to read, and the last place read in each.
            sources: for each of them.
            ports: of this process.
            client: who reads.
        """
        machine = StreamMachine(parameters, ports.clock.monotonic(), start)
        super().__init__(machine, Frames(), sources, ports, client, ())
        self._start = start

    def _look(self) -> None:
        self._step(self._arrived(self._start))

    def _release(self, partition: EventTypePartition) -> None:
        raise AssertionError(f"{partition} is not owned")

    def _leave(self) -> None:
        pass


class SubscriptionStream(_Stream):
    """A stream of `/subscriptions/{id}/events` (consumption contract 8)."""

    def __init__(
        self,
        subscription_id: str,
        stream_id: str,
        parameters: StreamParameters,
        sources: Mapping[EventTypePartition, Source],
        ports: StreamPorts,
        client: Client,
    ) -> None:
        """Begin; the session, which must have joined, is the stream's from now on.

        Args:
            subscription_id: what is read.
            stream_id: the session.
            parameters: those of a subscription's stream.
            sources: for all partitions of the subscription.
            ports: of this process.
            client: who reads.
        """
        machine = StreamMachine(parameters, ports.clock.monotonic())
        key = f"subscription:{subscription_id}"
        super().__init__(machine, Frames(random_token), sources, ports, client, [key])
        self._subscription_id, self._stream_id = subscription_id, stream_id
        self._seen: tuple[Topology, Mapping[EventTypePartition, str]] | None = None
        self._owned: Collection[EventTypePartition] = ()

    def _look(self) -> None:
        # In this order: then the cursors hold all that previous owners have committed.
        topology = self._ports.coordinator.topology(self._subscription_id)
        cursors = self._ports.coordinator.cursors(self._subscription_id)
        if self._stream_id not in topology.sessions:
            self._step(End(Reason.SESSION_ENDED if topology.partitions else Reason.SUBSCRIPTION_DELETED))
            return
        if self._seen is None or topology is not self._seen[0] or cursors is not self._seen[1]:
            self._seen = topology, cursors
            holdings = dict(self._holdings(topology, cursors))
            self._owned = holdings.keys()
            self._step(Coordinated(holdings))
        if topology.resetting:
            self._step(End(Reason.RESET))
        self._step(self._arrived(self._owned))

    def _holdings(
        self, topology: Topology, cursors: Mapping[EventTypePartition, str]
    ) -> Iterator[tuple[EventTypePartition, Holding]]:
        for key, assignment in topology.partitions.items():
            if assignment.session == self._stream_id:
                place = parse_offset(cursors[key], partition=key.partition, oldest_order=FIRST_ORDER)
                assert place is not None, "committed offsets are canonical"
                yield key, Holding(place, bool(assignment.next_session))

    def _release(self, partition: EventTypePartition) -> None:
        self._ports.coordinator.release(self._subscription_id, self._stream_id, partition)
        # Somebody may not want it any more: then it is still this stream's, and read again.
        self._seen = None

    def _leave(self) -> None:
        self._ports.coordinator.leave(self._subscription_id, self._stream_id)
