"""Drives the state machine of one stream against partitions in memory, as the pump does."""

from dataclasses import dataclass, field

from rioni.domain.cursor import Place
from rioni.domain.ports import EventTypePartition
from rioni.domain.streaming.messages import (
    Arrived,
    Close,
    Coordinated,
    End,
    Fetch,
    Fetched,
    Holding,
    Input,
    Reason,
    Release,
    Run,
    Send,
    Tick,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.session import StreamMachine
from tests.support.clock import ManualClock
from tests.support.memory import MemoryEventStore


A, B, C = (EventTypePartition("a", str(number)) for number in range(3))


def place(position: int) -> Place:
    return Place(1, position)


@dataclass
class Batch:
    partition: EventTypePartition
    position: int
    events: list[int]
    info: str


@dataclass
class Driver:
    """A stream, what it reads, and what it has done. The events are the numbers of their positions."""

    parameters: StreamParameters
    start: dict[EventTypePartition, Place] | None = None
    batches: list[Batch] = field(default_factory=list)
    released: list[EventTypePartition] = field(default_factory=list)
    closed: Reason | None = None

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryEventStore(self.clock)
        self.store.create_topic("a", 3)
        self.machine = StreamMachine(self.parameters, self.now_s, self.start)
        self.holdings: dict[EventTypePartition, Holding] = {}

    @property
    def now_s(self) -> float:
        return self.clock.monotonic()

    def publish(self, partition: EventTypePartition, count: int) -> None:
        number = int(partition.partition)
        first = self.store.bounds("a")[number].newest + 1
        self.store.append("a", {number: [b"%d" % position for position in range(first, first + count)]})
        self.arrive()

    def publish_alone(self, partition: EventTypePartition, count: int) -> None:
        """Publish without the stream noticing."""
        number = int(partition.partition)
        first = self.store.bounds("a")[number].newest + 1
        self.store.append("a", {number: [b"%d" % position for position in range(first, first + count)]})

    def arrive(self) -> None:
        bounds = self.store.bounds("a")
        self.step(Arrived({key: place(bounds[int(key.partition)].newest) for key in (A, B, C)}))

    def own(self, *partitions: EventTypePartition) -> None:
        self.holdings |= {key: Holding(place(-1), False) for key in partitions}
        self.step(Coordinated(self.holdings))

    def commit(self, partition: EventTypePartition, position: int) -> None:
        self.holdings[partition] = Holding(place(position), self.holdings[partition].wanted)
        self.step(Coordinated(self.holdings))

    def want(self, partition: EventTypePartition, *, wanted: bool = True) -> None:
        self.holdings[partition] = Holding(self.holdings[partition].committed, wanted)
        self.step(Coordinated(self.holdings))

    def end(self, reason: Reason, detail: str = "") -> None:
        self.step(End(reason, detail))

    def wait(self, seconds: float) -> None:
        """Let time pass, looking exactly when the machine asks for it."""
        until_s = self.now_s + seconds
        while (due_s := self.machine.deadline_s()) <= until_s and self.closed is None:
            self.clock.advance(max(0, round((due_s - self.now_s) * 1000)))
            self.step(Tick())
        self.clock.advance(round((until_s - self.now_s) * 1000))
        self.step(Tick())

    def step(self, message: Input) -> None:
        outputs = self.machine.step(message, self.now_s)
        assert not (self.closed and outputs), "nothing comes after the end"
        while outputs:
            runs = []
            for output in outputs:
                assert self.closed is None, "nothing comes after the end"
                match output:
                    case Send(partition, at, slices, info):
                        text = b",".join(part.chunk.cut(part.start, part.stop) for part in slices)
                        events = [int(event) for event in text.split(b",")] if text else []
                        assert events == [] or events[-1] == at.position
                        self.batches.append(Batch(partition, at.position, events, info))
                    case Fetch(partition, after, bytes_max):
                        assert bytes_max > 0
                        number = int(partition.partition)
                        runs.append(Run(output, 1, self.store.read("a", number, after.position + 1, bytes_max)))
                    case Release(partition):
                        self.released.append(partition)
                        del self.holdings[partition]
                    case Close(reason):
                        self.closed = reason
            outputs = self.machine.step(Fetched(runs), self.now_s) if runs else []

    def taken(self) -> list[Batch]:
        """The batches since the last call."""
        batches, self.batches = self.batches, []
        return batches

    def sizes(self) -> list[int]:
        return [len(batch.events) for batch in self.taken()]


def subscription(**changes) -> Driver:
    defaults = {"stream_timeout_s": 3600, "max_uncommitted_events": 10, "commit_timeout_s": 60}
    driver = Driver(StreamParameters(**(defaults | changes)))
    driver.own(A)
    return driver


def low_level(*partitions: EventTypePartition, **changes) -> Driver:
    parameters = StreamParameters(**({"stream_timeout_s": 3600} | changes))
    return Driver(parameters, {key: place(-1) for key in partitions or (A,)})
