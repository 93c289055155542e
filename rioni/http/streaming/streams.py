"""Streams over HTTP: of a subscription, whose assignment and cursors the coordinator keeps, and of fixed partitions."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from rioni.config.logs import FailureLog
from rioni.domain.errors import Invalid, RioniError, Unavailable
from rioni.domain.ports.coordinator import DeliveryFailure, Topology
from rioni.domain.ports.host import SUBSCRIPTION
from rioni.domain.streaming.batching import FRAME_S, Sampling, Slice
from rioni.domain.streaming.messages import (
    Coordinated,
    End,
    NewEvents,
    Output,
    PartitionOwnership,
    Reason,
    RecordDeliveryAttempt,
    SendToDeadLetterQueue,
)
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.subscriptions.cursor_arithmetic import beyond_end
from rioni.domain.subscriptions.dead_letters import NONE, Failures, Policy
from rioni.domain.timelines.position import BEFORE_FIRST, EventTypePartition, TimelinePosition, stored_place
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.http.streaming.frames import random_token
from rioni.http.streaming.stream_context import StreamClient, StreamPorts
from rioni.http.streaming.stream_runner import StreamRunner
from rioni.projections.queries.timeline_reader import newest_consistent


GIVES_WAY_AFTER_S = 2.0
"""How long the session of a client that has gone stays if there are other streams, so that its last commits come in
time."""

_log = structlog.get_logger(__name__)
_failure_log = FailureLog(_log)

_NOT_KEPT = "A dead letter can't be kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterHandler:
    """Applies a subscription's dead letter policy (reference streams#dead-letter-handling)."""

    policy: Policy
    handle: Callable[[EventTypePartition, Slice, int], None]
    """Called with a partition, one event, and its number of attempts; stores the event if the policy requires it;
    blocks."""


class SubscriptionStream(StreamRunner):
    """A stream of `/subscriptions/{id}/events` (reference streams#checks)."""

    def __init__(
        self,
        subscription_id: str,
        stream_id: str,
        parameters: StreamParameters,
        partitions: Collection[EventTypePartition],
        ports: StreamPorts,
        client: StreamClient,
        dead_letters: DeadLetterHandler | None = None,
    ) -> None:
        """Begin; the session, which must have joined, is the stream's from now on.

        Args:
            subscription_id: the subscription to read.
            stream_id: the session.
            parameters: those of a subscription's stream.
            partitions: all that the subscription has; should there be more some day, the stream ends.
            ports: the ports of this process.
            client: the client of the stream.
            dead_letters: applies the dead letter policy; None if uncommitted events are redelivered without limit.
        """
        keys = (SUBSCRIPTION + subscription_id, f"stream:{stream_id}")
        policy = dead_letters.policy if dead_letters else None
        super().__init__(parameters, None, client.frames(random_token), partitions, ports, client, keys, policy)
        self._dead_letters = dead_letters
        self._subscription_id, self._stream_id = subscription_id, stream_id
        self._known = frozenset(partitions)
        self._seen: tuple[Topology, Mapping[EventTypePartition, str]] | None = None
        self._owned: Collection[EventTypePartition] = ()
        # Before the client learns the stream's id: from then on it may commit ahead of the end, as the API allows.
        self._begun_at: Mapping[EventTypePartition, str] = ports.coordinator.cursors(subscription_id)
        self._retired_at_s: float | None = None
        self._unchecked: dict[EventTypePartition, str] = {}
        """The cursors of partitions that the stream was given, until it is known whether they exist."""
        # If it ends before any position is known: a position before all that can be committed.
        self._machine.fallback_partition = min(partitions), TimelinePosition(FIRST_ORDER, BEFORE_FIRST)

    def _check_events(self) -> None:
        # In this order: then the cursors hold all that previous owners have committed.
        topology = self._ports.coordinator.topology(self._subscription_id)
        cursors = self._ports.coordinator.cursors(self._subscription_id)
        for key, offset in cursors.items():
            self._machine.fallback_partition = key, stored_place(offset)
            break
        # It may have been deleted in between.
        if not (topology.partitions and cursors):
            self._step(End(Reason.SUBSCRIPTION_DELETED))
            return
        if self._stream_id not in topology.sessions:
            self._step(End(Reason.SESSION_ENDED))
            return
        if self._retired_at_s is not None and self._gives_way(topology, self._retired_at_s):
            self._step(End(Reason.SESSION_ENDED))
            return
        if self._seen is None or topology is not self._seen[0] or cursors is not self._seen[1]:
            self._seen = topology, cursors
            ownership = dict(self._ownership(topology, cursors))
            gained = ownership.keys() - self._owned
            self._unchecked |= {key: self._begun_at.get(key, cursors[key]) for key in gained}
            self._begun_at, self._owned = {}, ownership.keys()
            self._step(Coordinated(ownership))
        if topology.resetting or not topology.partitions.keys() <= self._known:
            self._step(End(Reason.RESET))
        new_events = self._new_events(self._owned)
        if self._unchecked:
            self._check_cursors(new_events)
        self._step(new_events)

    def _check_cursors(self, new_events: NewEvents) -> None:
        """End if a partition that the stream was given is committed beyond its last event: it would wait in silence.

        Not if the client itself commits ahead while it streams, which the API allows.
        """
        for key, offset in list(self._unchecked.items()):
            if key not in new_events.newest:
                del self._unchecked[key]
                continue
            timelines, place = self._tails[key.event_type].timelines, stored_place(offset)
            if place.order > timelines.active.order:
                # This process's registry does not have the timeline yet.
                continue
            del self._unchecked[key]
            if timelines.is_beyond_end(place, new_events.newest[key]):
                # Events appended by others may not be known here yet.
                newest = newest_consistent(timelines, self._ports.stores)[int(key.partition)]
                if timelines.is_beyond_end(place, newest):
                    self._step(End(Reason.BEYOND_END, beyond_end(key, offset, newest)))
                    return

    def _ownership(
        self, topology: Topology, cursors: Mapping[EventTypePartition, str]
    ) -> Iterator[tuple[EventTypePartition, PartitionOwnership]]:
        coordinator = self._ports.coordinator
        heartbeats = coordinator.heartbeats(self._subscription_id)
        delivery_failures = coordinator.delivery_failures(self._subscription_id) if self._dead_letters else {}
        for key, assignment in topology.partitions.items():
            if assignment.session == self._stream_id and key in self._known:
                failures = _failures(delivery_failures[key]) if key in delivery_failures else NONE
                wanted, beats = bool(assignment.next_session), heartbeats.get(key, 0)
                yield key, PartitionOwnership(stored_place(cursors[key]), wanted, failures, beats)

    def _do(self, output: Output) -> None:
        match output:
            case RecordDeliveryAttempt(partition, place, search_until):
                until = search_until.offset if search_until else None
                self._ports.coordinator.record_delivery_attempt(
                    self._subscription_id, self._stream_id, partition, place.offset, until
                )
            case SendToDeadLetterQueue(partition, event):
                self._dead_letter(partition, event)
            case _:
                super()._do(output)

    def _dead_letter(self, partition: EventTypePartition, event: Slice) -> None:
        assert self._dead_letters, "only streams with a policy have dead letters"
        try:
            self._dead_letters.handle(partition, event, self._dead_letters.policy.send_count)
        except RioniError as ex:
            # The other partitions go on; this one waits until the machine tries again.
            _failure_log.failed(_NOT_KEPT, ex)
        else:
            _failure_log.succeeded(_NOT_KEPT)
            self._commit([(partition, event.last)])
            self._check_events_at_s = self._ports.clock.monotonic()

    def _commit(self, cursors: Sequence[tuple[EventTypePartition, TimelinePosition]]) -> None:
        offsets = [(partition, place.offset) for partition, place in cursors]
        # A lost session or partition is detected elsewhere; the next owner will skip these events too.
        with contextlib.suppress(Invalid):
            self._ports.coordinator.commit(self._subscription_id, self._stream_id, offsets)

    def _release(self, partitions: Collection[EventTypePartition]) -> None:
        self._ports.coordinator.release(self._subscription_id, self._stream_id, *partitions)
        # The waiting stream may have left: then this stream still owns the partition, and reads it again.
        self._seen = None

    def _owns_partitions(self) -> bool:
        return self._ports.coordinator.owns(self._stream_id)

    def _retire(self) -> None:
        self._retired_at_s = self._check_events_at_s = self._ports.clock.monotonic()
        # If it can't be stored, the next stream waits for the end of the commit timeout.
        with contextlib.suppress(Unavailable):
            self._ports.coordinator.retire(self._subscription_id, self._stream_id)

    def _gives_way(self, topology: Topology, retired_at_s: float) -> bool:
        """Whether others wait for the partitions of the client that has gone, or its time for last commits is over."""
        if any(each.session == self._stream_id and each.next_session for each in topology.partitions.values()):
            return True
        until_s = retired_at_s + GIVES_WAY_AFTER_S
        if self._ports.clock.monotonic() < until_s:
            self._check_events_at_s = until_s
            return False
        return any(name != self._stream_id and not each.retired for name, each in topology.sessions.items())

    def _leave(self) -> None:
        self._ports.coordinator.leave(self._subscription_id, self._stream_id)


def _failures(failure: DeliveryFailure) -> Failures:
    return Failures(
        failure.failures,
        stored_place(failure.failed) if failure.failed else None,
        stored_place(failure.search_until) if failure.search_until else None,
    )


# --- A stream of fixed partitions, without commits ---


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
