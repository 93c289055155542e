"""Drives the state machine of one stream with partitions in memory, as the stream runner does."""

from dataclasses import dataclass, field

from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.domain.streaming.messages import (
    Close,
    Commit,
    Coordinated,
    End,
    Fetch,
    Fetched,
    Input,
    NewEvents,
    PartitionOwnership,
    Reason,
    RecordDeliveryAttempt,
    Release,
    Run,
    Send,
    SendToDeadLetterQueue,
    Tick,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.streaming.session import StreamMachine
from rioni.domain.subscriptions.dead_letters import NONE, Failures, Policy
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from tests.support.clock import ManualClock
from tests.support.memory import MemoryEventStore


A, B, C = (EventTypePartition("a", str(number)) for number in range(3))


HIDING = {".": NO_HEADERS, "t": Headers(key="key"), "x": Headers(subscription_id="another")}


def place(position: int) -> TimelinePosition:
    return TimelinePosition(1, position)


@dataclass
class Batch:
    partition: EventTypePartition
    position: int
    events: list[int]
    info: str


@dataclass
class Driver:
    """A stream, its partitions, and its outputs. The events are the numbers of their positions."""

    parameters: StreamParameters
    start: dict[EventTypePartition, TimelinePosition] | None = None
    batches: list[Batch] = field(default_factory=list)
    released: list[EventTypePartition] = field(default_factory=list)
    closed: Reason | None = None
    policy: Policy | None = None

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryEventStore(self.clock)
        self.store.create_topic("a", 3)
        self.machine = StreamMachine(self.parameters, self.now_s, self.start, policy=self.policy)
        self.ownership: dict[EventTypePartition, PartitionOwnership] = {}
        self.autocommitted: list[tuple[EventTypePartition, int]] = []
        self.attempts: list[tuple[EventTypePartition, int, int | None]] = []
        """The recorded delivery attempts: partition, last position, position up to which to search."""
        self.dead_lettered: list[tuple[EventTypePartition, int]] = []
        self.can_dead_letter = True
        """Whether sending to the dead letter queue succeeds."""

    @property
    def now_s(self) -> float:
        return self.clock.monotonic()

    def publish(self, partition: EventTypePartition, count: int) -> None:
        number = int(partition.partition)
        first = self.store.bounds("a")[number].newest + 1
        self.store.append("a", {number: [b"%d" % position for position in range(first, first + count)]})
        self.arrive()

    def publish_hidden(self, partition: EventTypePartition, pattern: str) -> None:
        """Publish events of which some are hidden: `.` a visible one, `t` a tombstone, `x` for another subscription."""
        number = int(partition.partition)
        first = self.store.bounds("a")[number].newest + 1
        events = [b"" if kind == "t" else b"%d" % position for position, kind in enumerate(pattern, first)]
        headers = [HIDING[kind] for kind in pattern]
        self.store.append("a", {number: events}, headers={number: headers})
        self.arrive()

    def publish_alone(self, partition: EventTypePartition, count: int) -> None:
        """Publish without notifying the stream."""
        number = int(partition.partition)
        first = self.store.bounds("a")[number].newest + 1
        self.store.append("a", {number: [b"%d" % position for position in range(first, first + count)]})

    def lose(self, partition: EventTypePartition, lost: int, left: int) -> None:
        """Publish events of which the first have expired before the stream is notified."""
        self.publish_alone(partition, lost)
        self.clock.advance(1)
        self.publish_alone(partition, left)
        self.store.delete_before("a", self.clock.now_ms())
        self.arrive()

    def arrive(self) -> None:
        bounds = self.store.bounds("a")
        self.step(NewEvents({key: place(bounds[int(key.partition)].newest) for key in (A, B, C)}))

    def own(self, *partitions: EventTypePartition, failures: Failures = NONE, committed: int = -1) -> None:
        self.ownership |= {key: PartitionOwnership(place(committed), False, failures) for key in partitions}
        self.step(Coordinated(self.ownership))

    def commit(self, partition: EventTypePartition, position: int) -> None:
        self.ownership[partition] = self.ownership[partition]._replace(committed=place(position))
        self.step(Coordinated(self.ownership))

    def heartbeat(self, partition: EventTypePartition) -> None:
        """Commit the same cursor again."""
        holding = self.ownership[partition]
        self.ownership[partition] = holding._replace(heartbeats=holding.heartbeats + 1)
        self.step(Coordinated(self.ownership))

    def want(self, partition: EventTypePartition, *, wanted: bool = True) -> None:
        self.ownership[partition] = self.ownership[partition]._replace(requested_by_other=wanted)
        self.step(Coordinated(self.ownership))

    def own_from(self, partition: EventTypePartition, committed: int) -> None:
        self.own(partition, committed=committed)

    def withdraw_request(self, partition: EventTypePartition) -> None:
        self.want(partition, wanted=False)

    def lose_all(self) -> None:
        self.ownership.clear()
        self.step(Coordinated(self.ownership))

    def end(self, reason: Reason, detail: str = "") -> None:
        self.step(End(reason, detail))

    def wait(self, seconds: float) -> None:
        """Let time pass, running the machine exactly when it requests it."""
        until_s = self.now_s + seconds
        while (due_s := self.machine.deadline_s()) <= until_s and self.closed is None:
            self.clock.advance(max(0, round((due_s - self.now_s) * 1000)))
            self.step(Tick())
        self.clock.advance(round((until_s - self.now_s) * 1000))
        self.step(Tick())

    def step(self, message: Input) -> None:
        outputs = self.machine.step(message, self.now_s)
        assert not (self.closed and outputs), "nothing comes after the end"
        committed: list[tuple[EventTypePartition, TimelinePosition]] = []
        while outputs:
            runs = []
            for output in outputs:
                assert self.closed is None, "nothing comes after the end"
                match output:
                    case Send(partition, at, slices, info):
                        text = b",".join(part.chunk.cut(part.start, part.stop) for part in slices)
                        events = [int(event) for event in text.split(b",")] if text else []
                        assert events == [] or events[-1] == at.position
                        assert not events or self.is_noted(partition), "noted before it is sent"
                        self.batches.append(Batch(partition, at.position, events, info))
                    case Fetch(partition, after, bytes_max):
                        assert bytes_max > 0
                        number = int(partition.partition)
                        runs.append(Run(output, 1, self.store.read("a", number, after.position + 1, bytes_max)))
                    case Commit(cursors):
                        committed += cursors
                    case RecordDeliveryAttempt() | SendToDeadLetterQueue():
                        committed += self.note(output)
                    case Release(partition):
                        self.committed(committed)
                        self.released.append(partition)
                        del self.ownership[partition]
                    case Close(reason):
                        self.closed = reason
            outputs = self.machine.step(Fetched(runs), self.now_s) if runs else []
        if self.committed(committed):
            self.step(Coordinated(self.ownership))

    def is_noted(self, partition: EventTypePartition) -> bool:
        noted = [last for key, last, _ in self.attempts if key == partition]
        return self.policy is None or noted[-1] > self.ownership[partition].committed.position

    def note(
        self, output: RecordDeliveryAttempt | SendToDeadLetterQueue
    ) -> list[tuple[EventTypePartition, TimelinePosition]]:
        """Handle an output about dead letters; return the cursors committed with it."""
        match output:
            case RecordDeliveryAttempt(partition, at, until):
                self.attempts.append((partition, at.position, until.position if until else None))
                return []
            case SendToDeadLetterQueue(partition, event):
                assert event.stop == event.start + 1
                self.dead_lettered.append((partition, event.start))
                return [(partition, event.last)] if self.can_dead_letter else []

    def committed(self, cursors: list[tuple[EventTypePartition, TimelinePosition]]) -> bool:
        """Do what the coordinator does with a commit of the stream."""
        news = bool(cursors)
        while cursors:
            partition, at = cursors.pop(0)
            assert at > self.ownership[partition].committed
            self.ownership[partition] = self.ownership[partition]._replace(committed=at)
            self.autocommitted.append((partition, at.position))
        return news

    def taken(self) -> list[Batch]:
        """The batches since the last call."""
        batches, self.batches = self.batches, []
        return batches

    def sizes(self) -> list[int]:
        return [len(batch.events) for batch in self.taken()]


def subscription(policy: Policy | None = None, **changes) -> Driver:
    defaults = {"stream_timeout_s": 3600, "max_uncommitted_events": 10, "commit_timeout_s": 60}
    driver = Driver(StreamParameters(**(defaults | changes)), policy=policy)
    driver.own(A)
    return driver


def low_level(*partitions: EventTypePartition, **changes) -> Driver:
    parameters = StreamParameters(**({"stream_timeout_s": 3600} | changes))
    return Driver(parameters, {key: place(-1) for key in partitions or (A,)})
