"""`/event-types/{name}/timelines` and `partition-count`: where events are stored.

Source: reference timelines#count-change, timelines#timeline-model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import falcon
import orjson

from rioni.commands.timelines.timelines import Repartition, StartSwitch
from rioni.domain.errors import EventTypeNotFound, NotFound
from rioni.domain.timelines.timeline import Timeline, Timelines
from rioni.domain.timestamps import LAST_MS, milliseconds, rfc3339
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.history import as_of
from rioni.http.request_parsing import context_of, dispatch, parsed
from rioni.http.resources.resource import Resource
from rioni.http.resources.settings import settings_for
from rioni.projections.queries.timelines import timelines_at


class TimelinesResource(Resource):
    """The timelines of one event type."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List all timelines by order, those whose events are gone included."""
        settings_for(req, self._dependencies)
        registry, at = self._dependencies.registry, as_of(req, resp, self._dependencies)
        with _detail_without_full_stop():
            if at is None:
                timelines, event_type = registry.timelines(name), registry.event_type(name)
            else:
                timelines, event_type = self._dependencies.query(timelines_at, name, at)
        retention_ms = event_type.options.retention_time
        resp.data = orjson.dumps([_item(each, timelines, retention_ms) for each in timelines.timelines])

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Switch to a new timeline; publishers wait meanwhile."""
        dependencies = self._dependencies
        storage_id = parsed(parsing.timeline_request, read_json(req), self._dependencies)
        with _detail_without_full_stop():
            dependencies.timeline_switcher.switch(
                StartSwitch(event_type=name, storage_id=storage_id), context_of(req, dependencies)
            )
        resp.status = HTTPStatus.CREATED.value


class PartitionCountResource(Resource):
    """The number of partitions of one event type."""

    def on_put(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Add partitions; streams of subscriptions end, so that their clients come back for them."""
        dependencies = self._dependencies
        count = parsed(parsing.partition_count, read_json(req), self._dependencies)
        dispatch(Repartition(event_type=name, partition_count=count), req, dependencies)
        dependencies.registry.refresh()
        # Even if nothing was added: the process that added them may have died before this.
        dependencies.cursor_initializer.extend(name)
        resp.status = HTTPStatus.NO_CONTENT.value

    on_post = on_put


@contextmanager
def _detail_without_full_stop() -> Iterator[None]:
    """Gives an unknown event type the detail that Nakadi gives it here, other than everywhere else."""
    try:
        yield
    except EventTypeNotFound as ex:
        raise NotFound(str(ex).removesuffix(".")) from ex


def _item(timeline: Timeline, timelines: Timelines, retention_ms: int | None) -> dict[str, Any]:
    latest, closed_at = timeline.latest_position, timelines.closed_at(timeline)
    cleaned_up_at = timeline.cleaned_up_at
    if cleaned_up_at is None and closed_at is not None and retention_ms is not None:
        # A broker administrator may set any retention time.
        cleaned_up_at = rfc3339(min(milliseconds(closed_at) + retention_ms, LAST_MS))
    return {
        "id": timeline.id,
        "event_type": timeline.event_type,
        "order": timeline.order,
        "storage_id": timeline.storage_id,
        "topic": timeline.topic,
        "created_at": timeline.created_at,
        "switched_at": timeline.switched_at,
        "cleaned_up_at": cleaned_up_at,
        "latest_position": None if latest is None else {"offsets": latest},
    }
