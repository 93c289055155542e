"""A stream of fixed partitions, without commits."""

import time
from collections.abc import Collection, Mapping, Sequence

from rioni.domain.streaming.batching import FRAME_S, Sampling
from rioni.domain.streaming.messages import NewEvents
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.timelines.position import BEFORE_FIRST, EventTypePartition, TimelinePosition
from rioni.http.streaming.stream_context import StreamClient, StreamPorts
from rioni.http.streaming.stream_runner import StreamRunner


class LowLevelStream(StreamRunner):
    """A stream of `GET /event-types/{name}/events` (reference low-level-streams#checks)."""

    def __init__(
        self,
        parameters: StreamParameters,
        start: Mapping[EventTypePartition, TimelinePosition],
        ports: StreamPorts,
        client: StreamClient,
    ) -> None:
        """Begin.

        Args:
            parameters: those of a low-level stream.
            start: the partitions to read, and the last place read in each.
            ports: the ports of this process.
            client: the client of the stream.
        """
        super().__init__(parameters, start, client.frames(None), start.keys(), ports, client, ())
        self._start = self._begins = start
        limit = parameters.events_per_second_limit
        self._sampling = Sampling(limit, ports.clock.monotonic()) if limit else None

    def _wait(self) -> None:
        if self._sampling:
            # Many notifications are answered at once.
            time.sleep(FRAME_S)
        super()._wait()

    def _check_events(self) -> None:
        new = self._new_events(self._start)
        self._step(NewEvents(new.newest, self._left_out(self._sampling, new.newest)) if self._sampling else new)

    def _left_out(
        self, sampling: Sampling, newest: Mapping[EventTypePartition, TimelinePosition]
    ) -> dict[EventTypePartition, tuple[TimelinePosition, int]]:
        """The events to skip: for each partition, the place of the last one and their number."""
        fetched = self._machine.fetched()
        read = sum(self._distance(key, self._begins[key], place) for key, place in fetched.items())
        unread = {key: self._distance(key, place, newest[key]) for key, place in fetched.items()}
        left_out = {}
        for key, count in sampling.left_out(unread, read, self._ports.clock.monotonic()).items():
            order, position = newest[key].order, newest[key].position - unread[key] + count
            last = TimelinePosition(order, max(position, BEFORE_FIRST))
            left_out[key] = last, self._distance(key, fetched[key], last)
        self._begins = fetched | {key: last for key, (last, _) in left_out.items()}
        return left_out

    def _distance(self, key: EventTypePartition, initial: TimelinePosition, final: TimelinePosition) -> int:
        return self._tails[key.event_type].timelines.distance(int(key.partition), initial, final)

    def _commit(self, cursors: Sequence[tuple[EventTypePartition, TimelinePosition]]) -> None:
        raise AssertionError(f"{cursors} can't be committed")

    def _release(self, partitions: Collection[EventTypePartition]) -> None:
        raise AssertionError(f"{partitions} are not owned")

    def _owns_partitions(self) -> bool:
        return True  # any number of streams may read a partition

    def _retire(self) -> None:
        raise AssertionError("a low-level stream whose client has gone ends at once")

    def _leave(self) -> None:
        pass
