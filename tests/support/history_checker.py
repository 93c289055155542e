"""Checks what the consumers of one subscription observed against the broker's promises, which hold despite all faults.

Events carry the numbers that one publisher gave to each partition, in ascending order. Times are those of a clock that
all observers share. Only what must be true with any delay between broker and observers is checked.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A batch as it was read: the numbers of its events, and the position of the last one."""

    at: float
    partition: str
    position: int
    numbers: Sequence[int]

    @property
    def first(self) -> int:
        return self.position - len(self.numbers) + 1


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A request to commit: 204 advanced the cursor, 200 did not, 422 was rejected, 0 has an unknown outcome."""

    begun: float
    ended: float
    partition: str
    position: int
    status: int


@dataclass(kw_only=True)
class Stream:
    """Everything that one stream received and committed, in order."""

    opened: float
    """The time of the request: its client may have been suspended before it read the answer."""
    answered: float = float("-inf")
    """The time when its client had read the head of the answer: the stream began before that, maybe after a reset."""
    deliveries: list[Delivery] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    ended: float | None = None
    """None for a stream whose client was killed."""
    reason: str = ""
    excused: bool = False
    """Whether its client or its worker process was killed, so that there need not be a reason."""
    unheard: bool = False
    """Whether it ended while its node could not reach the coordinator, so that it remains the owner for a while."""


@dataclass(frozen=True, kw_only=True)
class Reset:
    """A reset of cursors to positions, or an attempt with an unknown outcome."""

    begun: float
    ended: float
    positions: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The committed cursors, as a client read them."""

    begun: float
    ended: float
    positions: Mapping[str, int]


@dataclass(kw_only=True)
class History:
    """Everything that was observed."""

    acknowledged: dict[str, list[int]]
    """For each partition the numbers of the events that are certainly stored."""
    refused: dict[str, list[int]] = field(default_factory=dict)
    """For each partition the numbers of the events that are certainly not stored."""
    replays: dict[str, list[Delivery]] = field(default_factory=dict)
    """The events that low-level streams received, each from the first event to the last one, after all faults."""
    streams: dict[str, Stream] = field(default_factory=dict)
    resets: list[Reset] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    registered: list[str] = field(default_factory=list)
    """The ids of subscriptions whose creation was confirmed."""
    unseen: list[tuple[str, str]] = field(default_factory=list)
    """The confirmed subscriptions that a node did not find afterwards."""
    registries: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """For each node the keys and ids of all subscriptions that it lists, after all faults."""


def violations(history: History) -> list[str]:
    """All promises that the history violates."""
    return [
        *_lost(history),
        *_rejected_but_delivered(history),
        *_out_of_order(history),
        *_missing_positions(history),
        *_skipped_events(history),
        *_repeated(history),
        *_foreign_commits(history),
        *_moved_back(history),
        *_ends_without_reason(history),
        *_lost_subscriptions(history),
    ]


def _lost(history: History) -> Iterator[str]:
    """Acknowledged events are delivered at least once to every reader."""
    consumed = [delivery for stream in history.streams.values() for delivery in stream.deliveries]
    for reader, deliveries in [("the subscription", consumed), *history.replays.items()]:
        seen = defaultdict(set)
        for delivery in deliveries:
            seen[delivery.partition].update(delivery.numbers)
        for partition, numbers in history.acknowledged.items():
            if missing := sorted(set(numbers) - seen[partition]):
                yield f"lost: {missing[:5]} of partition {partition} never reached {reader}"


def _rejected_but_delivered(history: History) -> Iterator[str]:
    """Events whose publishing status was `aborted` are never delivered."""
    for name, delivery in _deliveries(history):
        if found := set(delivery.numbers) & set(history.refused.get(delivery.partition, ())):
            yield f"refused: {name} gets {sorted(found)} of partition {delivery.partition}"


def _out_of_order(history: History) -> Iterator[str]:
    """A position holds the same event for all readers; events are stored in the order of publishing, each of them once.

    An event without acknowledgement may be stored later than events that were published after it.
    """
    known: dict[str, dict[int, int]] = defaultdict(dict)
    for name, delivery in _deliveries(history):
        for position, number in enumerate(delivery.numbers, delivery.first):
            if known[delivery.partition].setdefault(position, number) != number:
                yield f"disordered: {name} has another event at {position} of partition {delivery.partition}"
    for partition, numbers in known.items():
        acknowledged, highest, places = set(history.acknowledged.get(partition, ())), -1, dict[int, int]()
        for position, number in sorted(numbers.items()):
            if places.setdefault(number, position) != position:
                yield f"doubled: {number} is at {places[number]} and at {position} of partition {partition}"
            elif number < highest and number in acknowledged:
                yield f"disordered: {number} comes after {highest} at {position} of partition {partition}"
            highest = max(highest, number)


def _missing_positions(history: History) -> Iterator[str]:
    """A reader of the whole partition gets every position once, in order, from the first one."""
    for name, deliveries in history.replays.items():
        following: dict[str, int] = defaultdict(int)
        for delivery in deliveries:
            if delivery.first != following[delivery.partition]:
                expected = following[delivery.partition]
                yield f"hole: {name} gets {delivery.first} of partition {delivery.partition}, not {expected}"
            following[delivery.partition] = delivery.position + 1


def _skipped_events(history: History) -> Iterator[str]:
    """No stream skips an event that was not committed."""
    for name, stream in history.streams.items():
        last: dict[str, int] = {}
        for delivery in stream.deliveries:
            reachable = max(_committable(history, stream, delivery), last.get(delivery.partition, -1))
            if delivery.first > reachable + 1:
                yield f"gap: {name} gets {delivery.first} of partition {delivery.partition} after {reachable}"
            last[delivery.partition] = delivery.position


def _committable(history: History, stream: Stream, delivery: Delivery) -> int:
    """The highest position that may have been committed before a batch was read."""
    reset = max(
        (each for each in history.resets if each.ended < stream.opened),
        key=lambda each: each.begun,
        default=Reset(begun=float("-inf"), ended=float("-inf"), positions={}),
    )
    partition = delivery.partition
    candidates = [-1, reset.positions.get(partition, -1)]
    candidates += [
        commit.position
        for _, commit in _commits(history)
        if commit.partition == partition
        and commit.status in {0, 204}
        and commit.begun < delivery.at
        and (commit.ended >= reset.begun or partition not in reset.positions)
    ]
    candidates += [
        each.positions.get(partition, -1)
        for each in history.resets
        if each.begun < delivery.at and each.ended >= stream.opened
    ]
    return max(candidates)


def _repeated(history: History) -> Iterator[str]:
    """Events committed before a stream was opened are not delivered again; a stream repeats none needlessly."""
    for name, stream in history.streams.items():
        last: dict[str, Delivery] = {}
        for delivery in stream.deliveries:
            partition = delivery.partition
            floor = max(
                (
                    commit.position
                    for _, commit in _commits(history)
                    if commit.partition == partition
                    and commit.status == 204
                    and commit.ended < stream.opened
                    and not _reset_between(history, commit.begun, max(stream.opened, stream.answered))
                ),
                default=-1,
            )
            if delivery.first <= floor:
                yield f"repeated: {name} gets {delivery.first} of partition {partition}, {floor} was committed"
            before = last.get(partition)
            if before and delivery.first <= before.position and not _may_be_shared(history, name, partition):
                yield f"repeated: {name} gets {delivery.first} of partition {partition} again, which is its alone"
            last[partition] = delivery


def _may_be_shared(history: History, name: str, partition: str) -> bool:
    """Whether other streams may have owned the partition while a stream lasted."""
    stream = history.streams[name]
    until = float("inf") if stream.ended is None else stream.ended
    return any(
        other.opened <= until and (other.ended is None or other.ended >= stream.opened)
        for each, other in history.streams.items()
        if each != name
    )


def _foreign_commits(history: History) -> Iterator[str]:
    """Only the owner commits, as long as it is the owner."""
    for name, stream in history.streams.items():
        for commit in stream.commits:
            if commit.status not in {200, 204}:
                continue
            late = stream.ended is not None and commit.begun > stream.ended
            if late and not stream.excused and not stream.unheard:
                yield (
                    f"foreign: {name} commits {commit.position} of partition {commit.partition} after its end, "
                    f"{commit.begun - stream.ended:.3f} s after {stream.reason!r}, answered {commit.status}"
                )
            got = [each for each in stream.deliveries if each.partition == commit.partition and each.at < commit.ended]
            if not any(each.position >= commit.position for each in got):
                yield f"foreign: {name} commits {commit.position} of partition {commit.partition}, which it never got"
    by_partition = defaultdict(list)
    for name, commit in _commits(history):
        if commit.status == 204:
            by_partition[commit.partition].append((name, commit))
    for partition, commits in by_partition.items():
        yield from _two_owners(history, partition, sorted(commits, key=lambda pair: pair[1].begun))


def _two_owners(history: History, partition: str, commits: Sequence[tuple[str, Commit]]) -> Iterator[str]:
    """Finds a stream that commits after another one took the partition over and began after a different position."""
    for (one, first), (two, second) in pairwise(commits):
        if one == two or first.ended >= second.begun:
            continue
        unknown = any(
            each.status == 0
            and each.partition == partition
            and each.begun < second.ended
            and first.position < each.position <= second.position
            for _, each in _commits(history)
        )
        if unknown or _reset_between(history, first.begun, second.ended):
            continue
        deliveries = [each for each in history.streams[two].deliveries if each.partition == partition]
        if not any(each.first == first.position + 1 and each.at < second.ended for each in deliveries):
            yield f"foreign: {one} and {two} both own partition {partition}"


def _moved_back(history: History) -> Iterator[str]:
    """Committed cursors only advance, except by resets."""
    ordered = sorted(history.observations, key=lambda each: each.begun)
    for one, other in pairwise(ordered):
        for partition, position in one.positions.items():
            if (
                one.ended < other.begun
                and other.positions.get(partition, -1) < position
                and not _reset_between(history, one.begun, other.ended)
            ):
                yield f"moved back: partition {partition} from {position} to {other.positions.get(partition, -1)}"
    for name, commit in _commits(history):
        if commit.status != 204:
            continue
        for each in ordered:
            if (
                commit.ended < each.begun
                and each.positions.get(commit.partition, -1) < commit.position
                and not _reset_between(history, commit.begun, each.ended)
            ):
                yield f"moved back: partition {commit.partition}, of which {name} had committed {commit.position}"
                break


def _ends_without_reason(history: History) -> Iterator[str]:
    for name, stream in history.streams.items():
        if stream.ended is not None and not stream.reason and not stream.excused:
            yield f"silent: {name} ended without a reason"


def _lost_subscriptions(history: History) -> Iterator[str]:
    """Every confirmed subscription is known to all nodes at once and for ever, and exists once."""
    for name, node in history.unseen:
        yield f"forgotten: {node} does not know {name} although that was registered"
    for node, found in history.registries.items():
        if missing := set(history.registered) - {name for _, name in found}:
            yield f"forgotten: {node} has lost {sorted(missing)[:5]}"
        if len({key for key, _ in found}) < len(found):
            yield f"doubled: {node} knows two of the same kind"
    for (one, first), (other, second) in pairwise(history.registries.items()):
        if first != second:
            yield f"forgotten: {one} and {other} know different things"


def _reset_between(history: History, begin: float, end: float) -> bool:
    return any(each.begun <= end and each.ended >= begin for each in history.resets)


def _deliveries(history: History) -> Iterator[tuple[str, Delivery]]:
    readers = {name: stream.deliveries for name, stream in history.streams.items()} | history.replays
    for name, deliveries in readers.items():
        for delivery in deliveries:
            yield name, delivery


def _commits(history: History) -> Iterator[tuple[str, Commit]]:
    for name, stream in history.streams.items():
        for commit in stream.commits:
            yield name, commit
