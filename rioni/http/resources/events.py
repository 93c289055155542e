"""`/event-types/{name}/events` and `…/deleted-events`: publishing, and the low-level stream.

Sources: reference publishing#publish-events, low-level-streams#checks.
"""

import contextlib
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import falcon
import msgspec

from rioni.commands.publishing.publisher import DeleteEvents, Published, Publisher, PublishEvents
from rioni.domain.avro.batches import MEDIA_TYPE
from rioni.domain.errors import EventTypeNotFound
from rioni.domain.publishing import consumer_tag, idempotency
from rioni.domain.publishing.results import ItemResult
from rioni.domain.subscriptions.activity import PUBLISH, resource_of
from rioni.domain.system.kpis import BatchPublished
from rioni.http.bodies.reading import read_body
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies
from rioni.http.middleware.access_log import SLO_BUCKETS, ms_spent, slo_bucket
from rioni.http.request_parsing import media_type
from rioni.http.resources.resource import Resource
from rioni.http.resources.streams.low_level import open_low_level_stream
from rioni.http.resources.streams.stream_client import stream_counters


RESULTS_MAX = 5_000
"""PERF: writing so many results takes 1 ms; more are written in a thread."""
READ_FIRST_BYTES_MAX = 65_536
"""Bodies of at most this length are read before authorization."""


class EventsResource(Resource):
    """The events of one event type."""

    def __init__(self, dependencies: Dependencies) -> None:
        super().__init__(dependencies)
        self._counters = stream_counters(dependencies.metrics, "low-level")
        seconds = dependencies.metrics.publish_seconds
        # PERF: the library takes 4 µs to find them.
        self._seconds = {bucket: seconds.labels(bucket) for bucket in SLO_BUCKETS}

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Publish a batch: 200 and nothing more if it is stored, else a result for each event.

        That comes with 422 if nothing was stored because an event was refused, and with 207 if not all of them could be
        stored.
        """
        command = PublishEvents(**_request(req, name, self._dependencies))
        published = _publisher(req, self._dependencies).publish(
            command, subject_of(req), self._dependencies.quotas.publishing(req)
        )
        _answer(resp, name, published, self._dependencies)
        _report(req, self._dependencies, command, published)
        self._seconds[slo_bucket(len(command.body))].observe(time.monotonic() - req.context.started_at)
        if published.events:
            self._dependencies.metrics.event_types.add(name, events=published.events, bytes_=len(command.body))

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Stream events of some or all partitions."""
        open_low_level_stream(req, resp, name, self._dependencies, self._counters)


class DeletedEventsResource(Resource):
    """Deletions from one compacted event type."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Delete the events that have the keys of a batch; answers as publishing does."""
        command = DeleteEvents(**_request(req, name, self._dependencies))
        deleted = _publisher(req, self._dependencies).delete(
            command, subject_of(req), self._dependencies.quotas.publishing(req)
        )
        _answer(resp, name, deleted, self._dependencies)
        _report(req, self._dependencies, command, deleted)
        if deleted.events:
            self._dependencies.metrics.event_types.add(name, deleted=deleted.events)


def _publisher(req: falcon.Request, dependencies: Dependencies) -> Publisher:
    """The publisher for the body's media type."""
    return dependencies.avro_publisher if media_type(req.content_type) == MEDIA_TYPE else dependencies.publisher


def _request(req: falcon.Request, name: str, dependencies: Dependencies) -> dict[str, Any]:
    """Arguments of both commands; headers are validated before the body is read."""
    tag = req.get_header(consumer_tag.HEADER)
    key = req.get_header(idempotency.HEADER)
    return {
        "event_type": name,
        "flow_id": req.context.flow_id,
        "span_ctx": req.context.span_ctx,
        "subscription_id": None if tag is None else consumer_tag.tagged_subscription(tag),
        "idempotency_key": None if key is None else idempotency.check_key(key),
        "body": _body(req, name, dependencies),
    }


def _body(req: falcon.Request, name: str, dependencies: Dependencies) -> bytes:
    """The body; a large one is read only if the subject may write to the event type.

    The contract knows that a body can't be read before it knows the event type, so short ones are read first.
    """
    length = req.content_length
    if length is None or length > READ_FIRST_BYTES_MAX or req.env.get("HTTP_CONTENT_ENCODING"):
        subject = subject_of(req)
        dependencies.registry.refresh()
        dependencies.access.blacklist("PRODUCER", subject, (name,))
        dependencies.access.event_type(subject, name, "WRITE")
    return read_body(req, dependencies.config.body_bytes_max)


def _answer(resp: falcon.Response, name: str, published: Published, dependencies: Dependencies) -> None:
    metrics = dependencies.metrics
    if published.rejected:
        metrics.event_types.add(name, refused=1)
        resp.status = HTTPStatus.UNPROCESSABLE_ENTITY.value
        resp.data = _encoded(published.rejected, dependencies)
    elif published.partly:
        resp.status = HTTPStatus.MULTI_STATUS.value
        resp.data = _encoded(published.partly, dependencies)
    if published.duplicates:
        metrics.event_types.add(name, duplicates=published.duplicates)


def _encoded(results: Sequence[ItemResult], dependencies: Dependencies) -> bytes:
    if len(results) <= RESULTS_MAX:
        return msgspec.json.encode(results)
    return dependencies.compute_pool(_encoded_in_parts, results)


def _encoded_in_parts(results: Sequence[ItemResult]) -> bytes:
    """The same as in one call, in which no other thread could run."""
    starts = range(0, len(results), RESULTS_MAX)
    return (
        b"[" + b",".join([msgspec.json.encode(results[start : start + RESULTS_MAX])[1:-1] for start in starts]) + b"]"
    )


def _report(
    req: falcon.Request, dependencies: Dependencies, command: PublishEvents | DeleteEvents, published: Published
) -> None:
    """Record what was stored: as activity of the client and, if it is the whole batch, for KPI events."""
    subject = subject_of(req)
    if published.events:
        # It may have been deleted meanwhile.
        with contextlib.suppress(EventTypeNotFound):
            resource = resource_of(dependencies.registry.event_type(command.event_type))
            dependencies.activity.record(PUBLISH, resource, subject.key, published.events)
    # Of a batch that was stored before, nothing is stored now.
    if published.partly or not published.events or not dependencies.usage.on:
        return
    measurement = BatchPublished(
        at_ms=dependencies.clock.now_ms(),
        event_type=command.event_type,
        app=subject.name,
        token_realm=subject.realm,
        number_of_events=published.events,
        ms_spent=ms_spent(req),
        batch_size=len(command.body),
    )
    dependencies.usage.published(measurement)
