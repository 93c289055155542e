"""A stream of fixed partitions, without commits."""

from collections.abc import Collection, Mapping, Sequence

from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
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
            ports: of this process.
            client: of the stream.
        """
        super().__init__(parameters, start, client.frames(None), start.keys(), ports, client, ())
        self._start = start

    def _check_events(self) -> None:
        self._step(self._new_events(self._start))

    def _commit(self, cursors: Sequence[tuple[EventTypePartition, TimelinePosition]]) -> None:
        raise AssertionError(f"{cursors} can't be committed")

    def _release(self, partitions: Collection[EventTypePartition]) -> None:
        raise AssertionError(f"{partitions} are not owned")

    def _owns_partitions(self) -> bool:
        return True  # any number of streams may read a partition

    def _leave(self) -> None:
        pass
