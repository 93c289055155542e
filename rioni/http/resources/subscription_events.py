"""`/subscriptions/{id}/events` and `/subscriptions/{id}/cursors`: streams, their list, and committed cursors."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import falcon
import orjson

from rioni.commands.subscriptions.cursors import CommitCursors, RecordFailureReasons
from rioni.commands.subscriptions.initial_cursors import ResetCursors
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Conflict, Malformed, NotFound, RioniError, Unavailable
from rioni.domain.ports.host import LOG_KEY, SUBSCRIPTION
from rioni.domain.streaming.batching import Slice
from rioni.domain.streaming.messages import Reason
from rioni.domain.streaming.parameters import check_partitions, subscription_parameters
from rioni.domain.subscriptions.dead_letters import DEAD_LETTER_QUEUE, SKIP_EVENT, policy_of
from rioni.domain.subscriptions.event_filter import event_filter
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.client_activity import COMMIT, END, STREAM
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.request_parsing import context_of, parsed
from rioni.http.resources.streams import HttpClient, respond, respond_to_head, stream_counters, stream_limits
from rioni.http.streaming.server_sent_events import LAST_EVENT_ID, LastEvent, last_event
from rioni.http.streaming.streams import DeadLetterHandler, SubscriptionStream
from rioni.projections.queries.timeline_reader import newest_consistent
from rioni.wire.events import CommittedCursor


# --- `/subscriptions/{id}/cursors`: committed cursors of a subscription (reference subscriptions#commit) ---

STREAM_ID_HEADER = "X-Nakadi-StreamId"


class SubscriptionCursorsResource(Resource):
    """The committed cursors of one subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """List the committed cursors; none until the subscription was first streamed."""
        dependencies = self._dependencies
        dependencies.registry.refresh()
        subscription = dependencies.registry.subscription(subscription_id)
        dependencies.access.blacklist(
            "CONSUMER", subject_of(req), subscription.event_types, "Application or subscription is blocked"
        )
        items = [
            {
                "partition": partition.partition,
                "offset": offset,
                "event_type": partition.event_type,
                "cursor_token": str(uuid4()),
            }
            for partition, offset in dependencies.coordinator.committed(subscription_id).items()
        ]
        resp.data = orjson.dumps({"items": items})

    def on_patch(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Reset cursors, once all streams have ended."""
        cursors = parsed(parsing.reset_cursors, read_json(req), self._dependencies)
        command = ResetCursors(subscription_id=subscription_id, cursors=cursors)
        self._dependencies.cursor_initializer.reset(command, context_of(req, self._dependencies))
        self._dependencies.signals.notify(LOG_KEY)
        resp.status = HTTPStatus.NO_CONTENT.value

    def on_post(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Commit cursors: 204 if all of them advanced their partitions, otherwise 200 with the result of each."""
        stream_id = req.get_header(STREAM_ID_HEADER)
        if stream_id is None:
            raise Malformed(f"The header {STREAM_ID_HEADER} is missing")
        cursors = parsed(parsing.committed_cursors, read_json(req), self._dependencies)
        command = CommitCursors(subscription_id=subscription_id, stream_id=stream_id, cursors=cursors)
        subject = subject_of(req)
        advanced = self._dependencies.committer.commit(command, subject)
        self._dependencies.metrics.committed_cursors.inc(sum(advanced))
        self._dependencies.activity.record(COMMIT, subscription_id, subject.key, sum(advanced))
        if all(advanced):
            resp.status = HTTPStatus.NO_CONTENT.value
            return
        items = [
            {
                "cursor": {name: cursor[name] for name in CommittedCursor.__struct_fields__},
                "result": "committed" if done else "outdated",
            }
            for cursor, done in zip(cursors, advanced, strict=True)
        ]
        resp.data = orjson.dumps({"items": items})


# --- `/subscriptions/{id}/events`: streaming a subscription (reference streams#checks); the list of its streams ---

SLOT_WAIT_S = 1.5
"""How long a stream waits for a slot before it is rejected; a disconnected client is detected within a second."""


class SubscriptionEventsResource(Resource):
    """The events of one subscription."""

    def __init__(self, dependencies: Dependencies) -> None:
        super().__init__(dependencies)
        self._counters = stream_counters(dependencies.metrics, "subscription")

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Stream, with parameters from the query; partitions are assigned automatically."""
        query: dict[str, Any] = {name: value for name, value in req.params.items() if name != "partitions"}
        self._stream(req, resp, subscription_id, query)

    def on_post(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Stream, with parameters from the body."""
        body = parsed(parsing.json_body, read_json(req), self._dependencies)
        if not isinstance(body, dict):
            raise Malformed("the body must be object")
        self._stream(req, resp, subscription_id, body)

    def _stream(self, req: falcon.Request, resp: falcon.Response, subscription_id: str, wishes: dict[str, Any]) -> None:
        dependencies, subject = self._dependencies, subject_of(req)
        parameters = subscription_parameters(wishes, stream_limits(dependencies))
        dependencies.registry.refresh()
        # Blocked clients must not learn what exists.
        dependencies.access.blacklist("CONSUMER", subject, ())
        subscription = dependencies.registry.subscription(subscription_id)
        dependencies.access.blacklist("CONSUMER", subject, subscription.event_types)
        partitions = [
            EventTypePartition(name, str(number))
            for name in subscription.event_types
            for number in range(dependencies.registry.timelines(name).active.partitions)
        ]
        check_partitions(parameters.partitions, partitions)
        seen = last_event(req)
        _check_names_event_types(seen)

        _check(dependencies, subject, subscription_id)
        if req.method == "HEAD":
            respond_to_head(req, resp)
            return
        if subscription.filter:
            # PERF: compiling takes milliseconds; it is remembered.
            dependencies.compute_pool(event_filter, subscription.filter)
        dependencies.cursor_initializer.initialise(subscription)
        self._end_former(subscription_id, seen, subject)
        stream_id = str(uuid4())
        release_slot = dependencies.stream_quota.acquire(subject.key)
        with contextlib.ExitStack() as undo:
            undo.callback(release_slot)
            self._join(subscription_id, stream_id, parameters.partitions)
            undo.callback(dependencies.coordinator.leave, subscription_id, stream_id)
            self._commit(subscription_id, stream_id, seen, subject)
            client = _Subscriber(
                req,
                dependencies,
                self._counters,
                parameters,
                release_slot,
                source=subscription_id,
                stream_id=stream_id,
            )
            ports = dependencies.streams
            dead_letters = self._dead_letters(subscription)
            stream = SubscriptionStream(subscription_id, stream_id, parameters, partitions, ports, client, dead_letters)
            undo.pop_all()
        resp.set_header(STREAM_ID_HEADER, stream_id)
        respond(req, resp, stream)

    def _join(self, subscription_id: str, stream_id: str, requested: Collection[EventTypePartition]) -> None:
        """Join; if there is no slot, wait briefly: a client may reconnect before its old stream has ended."""
        dependencies = self._dependencies
        join = partial(dependencies.coordinator.join, subscription_id, stream_id, requested)
        with contextlib.suppress(Conflict):
            return join()
        until_s = dependencies.clock.monotonic() + SLOT_WAIT_S
        waiter = dependencies.signals.watch([SUBSCRIPTION + subscription_id])
        try:
            # Woken streams check their connections.
            streams = dependencies.coordinator.topology(subscription_id).sessions
            dependencies.signals.notify(*(f"stream:{name}" for name in streams))
            while True:
                epoch = dependencies.coordinator.topology(subscription_id).epoch
                try:
                    return join()
                except Conflict:
                    while dependencies.coordinator.topology(subscription_id).epoch == epoch:
                        if (left_s := until_s - dependencies.clock.monotonic()) <= 0:
                            raise
                        waiter.wait(left_s)
        finally:
            waiter.close()

    def _dead_letters(self, subscription: Subscription) -> DeadLetterHandler | None:
        """The subscription's dead letter policy, as it is when the stream begins."""
        policy = policy_of(subscription.annotations)
        if policy is None:
            return None
        count = self._dependencies.metrics.unprocessable_events.labels(
            DEAD_LETTER_QUEUE if policy.keeps else SKIP_EVENT
        )

        def handle(partition: EventTypePartition, event: Slice, sent: int) -> None:
            if policy.keeps:
                failure = self._dependencies.coordinator.delivery_failures(subscription.id).get(partition)
                reason = failure.reason_for(event.last.offset) if failure else ""
                self._dependencies.dead_letter_queue.keep(subscription.id, partition, event, sent, reason)
            count.inc()

        return DeadLetterHandler(policy=policy, handle=handle)

    def _end_former(self, subscription_id: str, seen: LastEvent, subject: Subject) -> None:
        """End the stream that a browser had before, after committing the events that the browser has seen.

        Its connection may be broken without the broker having noticed; it would keep the slot until its commit timeout.
        """
        dependencies, former = self._dependencies, seen.stream_id
        if former not in dependencies.coordinator.topology(subscription_id).sessions:
            return
        with contextlib.suppress(Unavailable):
            if dependencies.resumption.proves(seen.proof, former, subject):
                self._commit(subscription_id, former, seen, subject)
                dependencies.coordinator.leave(subscription_id, former)

    def _commit(self, subscription_id: str, stream_id: str, seen: LastEvent, subject: Subject) -> None:
        """Commit the events that a browser has seen, in the partitions that are this stream's."""
        if not seen.cursors:
            return
        topology = self._dependencies.coordinator.topology(subscription_id)
        own = {key for key, assignment in topology.partitions.items() if assignment.session == stream_id}
        cursors = [each for each in seen.cursors if EventTypePartition(each["event_type"], each["partition"]) in own]
        if cursors:
            # If the commit fails for any reason, the events are delivered again.
            with contextlib.suppress(RioniError):
                if self._are_beyond_end(cursors):
                    return
                command = CommitCursors(subscription_id=subscription_id, stream_id=stream_id, cursors=cursors)
                self._dependencies.committer.commit(command, subject)

    def _are_beyond_end(self, cursors: Sequence[Mapping[str, str]]) -> bool:
        """Whether a browser has seen events that are not here, as after a restore to an earlier state.

        Others come in their place, which it would never get if its cursors were committed. Blocks on the stores.
        """
        registry, newest = self._dependencies.registry, dict[str, Sequence[TimelinePosition]]()
        for each in cursors:
            name, number = each["event_type"], each["partition"]
            timelines = registry.timelines(name)
            if name not in newest:
                newest[name] = newest_consistent(timelines, self._dependencies.streams.stores)
            place = parse_offset(each["offset"], partition=number, oldest_order=FIRST_ORDER)
            if place is not None and timelines.is_beyond_end(place, newest[name][int(number)]):
                return True
        return False


def _check_names_event_types(seen: LastEvent) -> None:
    if not all(isinstance(each.get("event_type"), str) for each in seen.cursors):
        raise Malformed(f"{LAST_EVENT_ID} is not the id of an event of a subscription's stream")


class _Subscriber(HttpClient):
    """The client of a subscription's stream."""

    __slots__ = ()
    API = "hila"
    ACTION = STREAM

    def check(self) -> None:
        _check(self.dependencies, self.subject, self.source)

    def on_end(self, reason: Reason) -> None:
        """Log and record why it ends."""
        super().on_end(reason)
        self.dependencies.activity.record(END + reason.label, self.source, self.subject.key, 1)


def _check(dependencies: Dependencies, subject: Subject, subscription_id: str) -> None:
    subscription = dependencies.access.subscription(subject, subscription_id)
    dependencies.access.blacklist("CONSUMER", subject, subscription.event_types)
    for name in subscription.event_types:
        dependencies.access.event_type(subject, name, "READ")


class SubscriptionStreamResource(Resource):
    """One open stream, on any worker process."""

    def on_delete(self, req: falcon.Request, resp: falcon.Response, subscription_id: str, stream_id: str) -> None:
        """Close a stream: its slot and partitions are free when this is answered; its client gets a final message.

        Clients that may commit for it may close it: readers of the subscription that know the stream's id.
        """
        dependencies = self._dependencies
        dependencies.registry.refresh()
        dependencies.access.subscription(subject_of(req), subscription_id)
        if stream_id not in dependencies.coordinator.topology(subscription_id).sessions:
            raise NotFound(f"Session with stream id {stream_id} not found")
        dependencies.coordinator.leave(subscription_id, stream_id)
        resp.status = HTTPStatus.NO_CONTENT.value


class StreamFailuresResource(Resource):
    """The failures of one open stream's client."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, subscription_id: str, stream_id: str) -> None:
        """Record why events can't be processed, for the dead letters that they may become."""
        failures = parsed(parsing.failure_reasons, read_json(req), self._dependencies)
        command = RecordFailureReasons(subscription_id=subscription_id, stream_id=stream_id, failures=failures)
        self._dependencies.committer.record_failure_reasons(command, subject_of(req))
        resp.status = HTTPStatus.NO_CONTENT.value
