"""Copies events from one event type to another one, of the same broker or of two: in order, and each one once."""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid5

from rioni.cli.events.copy_state import CopyState, Identity, StateFile
from rioni.cli.events.selecting import Selection, Wanted, between, ends, starts
from rioni.cli.publishing.publishing import BATCH_BYTES_MAX, BatchOutcome, BatchPublisher, Completion
from rioni.client import Client, EventType, NotFound, Schema, Statistic, Unprocessable, metadata
from rioni.client.encoding import CATEGORY_WITHOUT_METADATA
from rioni.client.ranges import Bounds, Locator, Place, Range, RangePart, Reader, place
from rioni.domain.errors import Invalid
from rioni.domain.texts import proposal


if TYPE_CHECKING:
    import msgspec


THREADS = 4
"""Partitions that are copied at the same time."""
POLL_S = 1.0
"""Seconds between two polls for new events of a copy that follows."""


class RefusedEvent(NamedTuple):
    """An event that the target's broker refused."""

    partition: str
    offset: str
    step: str
    reason: str
    event: bytes
    """The event as it is in the source."""


class Stopped(Exception):
    """An event was refused, and that is the end."""


def new_state(source: EventType, target: EventType, target_client: Client, options: dict[str, str]) -> CopyState:
    """The state of a copy before it begins.

    Args:
        source: the event type.
        target: the event type.
        target_client: of its broker.
        options: what the batches depend on, in addition to their events.
    """
    bounds = Locator(target_client, target.name).bounds()
    return CopyState(
        source=Identity.of(source),
        target=Identity.of(target),
        options=options,
        target_begin={name: each.newest.offset for name, each in bounds.items()},
    )


def check_identities(state: CopyState, source: Client, target: Client) -> None:
    """Check that source and target are still the event types of a copy; blocks until their brokers answer.

    Raises:
        Invalid: one was deleted, and created again.
    """
    for client, known in ((source, state.source), (target, state.target)):
        if Identity.of(client.event_types.get(known.event_type)) != known:
            raise Invalid(
                f"{known.event_type} was deleted and created again since the copy began. Begin a new copy, with "
                "another file of state."
            )


@dataclass
class Transformation:
    """Makes events of the source publishable to the target.

    Args:
        copy_id: of the copy; new ids follow from it and the place of the event, so that a repetition has the same.
        target: the event type.
        keep_metadata: whether `eid` and `occurred_at` are those of the source.
    """

    copy_id: str
    target: EventType
    keep_metadata: bool

    def __post_init__(self) -> None:
        removed = {"eid", "occurred_at"} if not self.keep_metadata else set()
        if self.target.cleanup_policy == "delete":
            # Only compacted event types know this member.
            removed.add("partition_compaction_key")
        self._completion = Completion(self.target.name, removed=removed)

    def __call__(self, event: bytes, partition: str, at: Place) -> bytes:
        """The event to publish."""
        if self.target.category == CATEGORY_WITHOUT_METADATA:
            return event
        eid = uuid5(UUID(self.copy_id), f"{partition} {at.offset}")
        return self._completion.complete(event, metadata(eid=str(eid)))


@dataclass(kw_only=True)
class Copy:
    """Copies events.

    Args:
        reader: of the source.
        wanted: of which events.
        transform: makes an event publishable.
        publisher: of batches to the target.
        state: how far it is.
        batch: events of a batch at most.
        stop: whether to stop at the first event that is refused.
        refused: called with each one, by several threads.
        progress: called after each batch.
        check: raises Invalid if source or target is no longer the event type of the state.
        give_up: ends the requests of other threads, if one has failed.
        ending: is set when the copy ends, so that nothing waits any longer.
    """

    reader: Reader
    wanted: Wanted
    transform: Transformation
    publisher: BatchPublisher
    state: StateFile
    batch: int
    stop: bool
    refused: Callable[[RefusedEvent], None]
    progress: Callable[[], None] = lambda: None
    check: Callable[[], None] = lambda: None
    give_up: Callable[[], None] = lambda: None
    ending: threading.Event = field(default_factory=threading.Event)
    total: int = 0
    """Positions of the source that are to be copied, so far."""
    stopped: dict[str, BatchOutcome] = field(default_factory=dict)
    """The outcomes, by partition, of the batches that ended with a refused event; the state does not count them."""

    def run(self, selection: Selection, *, follow: bool) -> None:
        """Copy the selected events; blocks until they are copied, with `follow` up to `until`, or for ever.

        Raises:
            Stopped: an event was refused, and that is the end.
            ClientError: a broker does not answer, or refuses.
            Invalid: the selection does not fit, or the state can't be written.
        """
        locator = self.reader.locator
        bounds = locator.bounds(selection.partitions)
        if not self.state.state.partitions:
            for name, at in starts(locator, bounds, selection, from_end=False).items():
                self.state.begin_partition(name, at.offset)
        self.state.save()
        self._check_ends(bounds)
        try:
            self._at_once([range_ for name in bounds for range_ in self._pending(name)], whole=True)
            while True:
                is_open = selection.is_open
                to = ends(locator, bounds, selection)
                if is_open and not selection.is_open:
                    continue  # the end passed meanwhile, and later events are not wanted
                self._check_ends(bounds)
                self._at_once(between(locator, self._places(), to), whole=False)
                # Checked after reading: an event type that was recreated meanwhile was read from the middle.
                self.check()
                if not follow or not is_open:
                    return
                self.ending.wait(POLL_S)
                bounds = locator.bounds(selection.partitions)
                for name in bounds.keys() - self.state.state.partitions.keys():
                    self.state.begin_partition(name, bounds[name].before_oldest.offset)
        finally:
            self.ending.set()
            self.state.state.lost += self.reader.lost
            self.state.save()

    def _check_ends(self, bounds: Mapping[str, Bounds]) -> None:
        for name, each in self.state.state.partitions.items():
            at, held = place(each.pending or each.copied), bounds.get(name)
            if held is not None and at > max(held.newest, held.before_oldest):
                raise Invalid(
                    f"The copy stands at {at.offset} of partition {name} of {self.reader.event_type}, which ends at "
                    f"{held.newest.offset}: was the broker restored from a backup? What was published there since "
                    "would be skipped. Begin a new copy, with another file of state."
                )

    def _places(self) -> dict[str, Place]:
        return {name: place(each.copied) for name, each in self.state.state.partitions.items()}

    def _pending(self, partition: str) -> Iterator[Range]:
        """The batch that was being published when the copy was interrupted."""
        each = self.state.state.partitions.get(partition)
        if each is not None and each.pending is not None:
            after, to = place(each.copied), place(each.pending)
            yield Range(partition, after, to, self.reader.locator.distance(partition, after, to))

    def _at_once(self, ranges: Sequence[Range], *, whole: bool) -> None:
        """Copy ranges of different partitions at the same time."""
        self.total += sum(each.positions for each in ranges)
        if not ranges:
            return
        with ThreadPoolExecutor(min(THREADS, len(ranges))) as pool:
            copying = [pool.submit(self._copy, each, whole=whole) for each in ranges]
            try:
                done, _ = wait(copying, return_when=FIRST_EXCEPTION)
                for each in done:
                    each.result()  # waits: it is done
            except Stopped:
                self.ending.set()
                raise
            except BaseException:
                self.ending.set()
                self.give_up()
                raise

    def _copy(self, part: Range, *, whole: bool) -> None:
        """Copy a range, batch by batch, or as one batch."""
        pieces: list[RangePart] = []
        after, count, size = part.after, 0, 0
        with closing(self.reader.read(part)) as reading:
            for piece in reading:
                if self.ending.is_set():
                    return
                more = sum(map(len, piece.events))
                is_full = count + len(piece.events) > self.batch or size + more > BATCH_BYTES_MAX
                if pieces and is_full and not whole:
                    after = self._publish(part.partition, after, pieces)
                    pieces, count, size = [], 0, 0
                pieces.append(piece)
                count += len(piece.events)
                size += more
        if pieces:
            self._publish(part.partition, after, pieces)

    def _publish_part(self, partition: str, chosen: Sequence[tuple[Place, "msgspec.Raw"]], key: str) -> BatchOutcome:
        """Publish events in one request, and return which were refused."""
        events = [self.transform(bytes(event), partition, at) for at, event in chosen]
        outcome = self.publisher.publish(events, key)
        for number, step, reason in outcome.refused:
            at, event = chosen[number]
            self.refused(RefusedEvent(partition, at.offset, step, reason, bytes(event)))
        return outcome

    def _publish(self, partition: str, after: Place, pieces: Sequence[RangePart]) -> Place:
        """Publish a batch; returns the place up to which everything is copied now."""
        to = pieces[-1].read_to
        chosen: list[tuple[Place, msgspec.Raw]] = []
        for piece in pieces:
            chosen += [(piece.place(n), event) for n, event in enumerate(piece.events) if self.wanted(event)]
        read = sum(len(piece.events) for piece in pieces)
        stored = refused = 0
        if chosen:
            self.state.begin_batch(partition, to.offset)
            key = f"rioni-copy-{self.state.state.id}-{partition}-{after.offset}-{to.offset}"
            for number, part in enumerate(_parts(chosen)):
                outcome = self._publish_part(partition, part, f"{key}-{number}")
                stored, refused = stored + outcome.stored, refused + len(outcome.refused)
                if outcome.refused and self.stop:
                    self.stopped[partition] = BatchOutcome(stored, outcome.refused)
                    raise Stopped
        self.state.end_batch(partition, to.offset, read=read, stored=len(chosen) - refused, refused=refused)
        self.progress()
        return to


def _parts(
    chosen: Sequence[tuple[Place, "msgspec.Raw"]],
) -> Iterator[Sequence[tuple[Place, "msgspec.Raw"]]]:
    """Events that fit into a request together; the same ones for the same batch."""
    start = size = 0
    for number, (_, event) in enumerate(chosen):
        if number > start and size + len(event) > BATCH_BYTES_MAX:
            yield chosen[start:number]
            start, size = number, 0
        size += len(event)
    yield chosen[start:]


def growth(client: Client, state: CopyState) -> int | None:
    """How many events the target has got since the copy began, from all producers; None if that can't be known."""
    locator = Locator(client, state.target.event_type)
    begin = {name: place(offset) for name, offset in state.target_begin.items()}
    try:
        return sum(
            locator.distance(name, begin.get(name, each.before_oldest), each.newest)
            for name, each in locator.bounds().items()
        )
    except Unprocessable:
        return None  # timelines of that time are gone


# --- Makes the event type that events are copied to, like their source ---


def target_of(
    client: Client, name: str, source_client: Client, source: EventType, selection: Selection, *, create: bool
) -> tuple[EventType, bool]:
    """The event type to copy to, and whether it was made now.

    Args:
        client: of its broker.
        name: of the event type.
        source_client: of the broker of the source.
        source: the event type that is copied.
        selection: of its events.
        create: whether to make it if it does not exist.

    Raises:
        Invalid: it does not exist, it is the source itself, or the selection does not fit, in which case nothing is
            made.
    """
    locator = Locator(source_client, source.name)
    bounds = locator.bounds(selection.partitions)
    starts(locator, bounds, selection, from_end=False)
    try:
        found = client.event_types.get(name)
    except NotFound as ex:
        if not create:
            near = proposal(name, (each.name for each in client.event_types.list()))
            raise Invalid(
                f"There is no event type {name} to copy to{near} --create makes one like {source.name}."
            ) from ex
        return _created(client, name, source, len(source_client.partitions.list(source.name))), True
    if (found.name, found.created_at) == (source.name, source.created_at):
        raise Invalid(f"{name} can't be copied to itself: source and target are the same event type.")
    return found, False


def _created(client: Client, name: str, source: EventType, partitions: int) -> EventType:
    wanted = copy.copy(source)
    wanted.name = name
    wanted.schema = Schema(schema=source.schema.schema, type=source.schema.type)
    load = source.default_statistic
    # Partitions may have been added since the source was made.
    wanted.default_statistic = Statistic(
        messages_per_minute=load.messages_per_minute if load else 1,
        message_size=load.message_size if load else 1,
        read_parallelism=partitions,
        write_parallelism=min(load.write_parallelism, partitions) if load else partitions,
    )
    client.event_types.create(wanted)
    if len(client.partitions.list(name)) < partitions:
        client.partitions.set_count(name, partitions)
    return client.event_types.get(name)
