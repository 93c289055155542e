"""Publishes the rows of a table, each batch under a key of its own, so that a repeated task stores nothing twice."""

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rioni.client import ItemResult, PublishingFailed, values
from rioni.client.encoding import encode_batch
from rioni.client.errors import problem
from rioni.domain.errors import Invalid, Unavailable
from rioni.spark.event_values import Rows
from rioni.spark.options import Options
from rioni.tools.api_client import RequestRefused, call


RETRY_S = 1
STREAM_BATCH = "streaming.sql.batchId"
"""The property in which Spark tells a task the number of its micro-batch."""

_BUSY = (429, 503)
_MULTI_STATUS, _UNPROCESSABLE = 207, 422


class NotPublished(Unavailable):
    """The broker has refused events, or has stored a part of them only."""


class EventWriter(DataSourceArrowWriter):
    """Publishes the rows of a batch query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        Rows(schema)
        self._has_metadata = _has_metadata(options)
        self._options, self._schema = options, schema
        # Fixed on the driver: the tasks, and their repetitions, get the same.
        self._job = options.job or str(uuid.uuid4())
        self._now = datetime.now(UTC).isoformat()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; blocks until all of them are stored.

        Raises:
            Invalid: a value has no form in JSON.
            NotPublished: the broker refused some.
            Unavailable: it does not answer.
        """
        publish(self._options, self._schema, self._prefix(), self._now, iterator, has_metadata=self._has_metadata)
        return WriterCommitMessage()

    def _prefix(self) -> str:
        return f"{self._job}-{_task().partitionId()}"


class EventStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of micro-batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        Rows(schema)
        self._has_metadata = _has_metadata(options)
        if options.job is None:
            raise Invalid("Name the query by the option job: its name must be the same when it is started again.")
        self._options, self._schema = options, schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; blocks and raises as for batch queries."""
        task = _task()
        batch = task.getLocalProperty(STREAM_BATCH)
        if batch is None:
            raise Invalid("Spark does not say which micro-batch this is.")
        # A restarted query must send the same bytes: the time is not that of the driver's start.
        publish(
            self._options,
            self._schema,
            f"{self._options.job}-{batch}-{task.partitionId()}",
            None,
            iterator,
            has_metadata=self._has_metadata,
        )
        return WriterCommitMessage()


def _has_metadata(options: Options) -> bool:
    """Whether the events of the event type to publish to have metadata; blocks until the broker answers."""
    if len(options.event_types) != 1:
        raise Invalid("Name the one event type to publish to by the option event_type.")
    return options.broker().event_type(options.event_types[0]).category != "undefined"


def _task() -> TaskContext:
    found = TaskContext.get()
    assert found is not None, "writers run in tasks"
    return found


def publish(
    options: Options,
    schema: StructType,
    prefix: str,
    now: str | None,
    batches: Iterator[pa.RecordBatch],
    *,
    has_metadata: bool,
) -> None:
    """Publish rows in requests of a fixed number of events, so that the same rows make the same requests.

    Args:
        options: of the source.
        schema: of the rows.
        prefix: of the keys: job and task.
        now: when events without `metadata` occurred; None where they must have it.
        batches: the rows.
        has_metadata: whether events of the event type have metadata.

    Raises:
        Invalid: a value has no form in JSON.
        NotPublished: the broker refused some.
    """
    sent = 0
    waiting: list[bytes] = []
    rows = Rows(schema)
    for batch in batches:
        for event in rows.events(batch):
            number = sent * options.events_per_request + len(waiting)
            waiting.append(values.encode(with_metadata(event, f"{prefix}-{number}", now) if has_metadata else event))
            if len(waiting) == options.events_per_request:
                _send(options, f"{prefix}-{sent}", waiting)
                sent, waiting = sent + 1, []
    if waiting:
        _send(options, f"{prefix}-{sent}", waiting)


def with_metadata(event: dict[str, Any], name: str, now: str | None) -> dict[str, Any]:
    """An event with `eid` and `occurred_at`.

    Args:
        event: with or without them.
        name: of the row within the job, from which an `eid` is made where there is none.
        now: for `occurred_at` where there is none.
    """
    metadata = event.setdefault("metadata", {})
    metadata.setdefault("eid", str(uuid.uuid5(uuid.NAMESPACE_URL, f"rioni:{name}")))
    if now is not None:
        metadata.setdefault("occurred_at", now)
    return event


def _send(options: Options, key: str, events: list[bytes]) -> None:
    name = options.event_types[0]
    path = f"/event-types/{quote(name, safe='')}/events"
    deadline = time.monotonic() + options.timeout_s
    while True:
        try:
            status, answer = call(
                options.server(),
                "POST",
                path,
                encode_batch(events),
                accept=(_UNPROCESSABLE,),
                headers={"Idempotency-Key": key},
                repeatable=True,
            )
            break
        except RequestRefused as ex:
            if ex.problem.status not in _BUSY:
                raise
            if time.monotonic() > deadline:
                raise NotPublished(f"{options.url} was too busy for {options.timeout_s} s: {ex}") from ex
        time.sleep(RETRY_S)
    if isinstance(answer, list) and status in (_MULTI_STATUS, _UNPROCESSABLE):
        raise NotPublished(str(PublishingFailed(name, msgspec.convert(answer, list[ItemResult]))))
    if status == _UNPROCESSABLE:
        raise NotPublished(str(problem(status, answer, request=f"POST {path}", retry_after_s=None)))
