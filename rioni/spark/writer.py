"""Publishes the rows of a table, each batch under its own key, so that a repeated task stores nothing twice."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rioni.client import Client, ItemResult, PublishingFailed, TooManyRequests, values
from rioni.client import Unavailable as Busy
from rioni.client.encoding import CATEGORY_WITHOUT_METADATA, encode_batch
from rioni.client.errors import members_of, problem
from rioni.domain.errors import Invalid, Unavailable
from rioni.lake.columns import CORRUPT, OFFSET, PARTITION, REST
from rioni.lake.reader import event_type
from rioni.spark.event_reader import EVENT_TYPE, IS_JSON
from rioni.spark.options import SourceOptions


# Rows of Spark as events: each value as the JSON that the client writes, or refused with the path of its column.

OF_THE_BROKER = frozenset(("received_at", "published_by", "version", "event_type"))
"""Members of `metadata` that the broker sets."""

_PLACES = {PARTITION, OFFSET, EVENT_TYPE}

_OBJECTS = msgspec.json.Decoder(float_hook=values.number)
_Convert = Callable[[Any], Any]


class Rows:
    """Makes events of the rows of one table."""

    def __init__(self, schema: t.StructType) -> None:
        """Look at the types.

        Raises:
            Invalid: a column can't be written; the text names its path.
        """
        _check_names(schema.names, "The table")
        self._columns = [
            (each.name, _of_field(each, each.name))
            for each in schema.fields
            if each.name not in {*_PLACES, CORRUPT, REST}
        ]

    def events(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """The event of each row, for the encoder of the client.

        Raises:
            Invalid: a value has no form in JSON; the text names its column.
        """
        columns = [(name, self._converted(name, convert, batch.column(name))) for name, convert in self._columns]
        corrupt, rest = (_texts(batch, name) for name in (CORRUPT, REST))
        for number in range(batch.num_rows):
            if corrupt[number] is not None:
                event = _object(corrupt[number], CORRUPT)
            else:
                event = {name: column[number] for name, column in columns if column[number] is not None}
                if rest[number] is not None:
                    event = merged(event, _object(rest[number], REST))
            if isinstance(found := event.get("metadata"), dict):
                event["metadata"] = _accepted(found)
            try:
                values.check(event)
            except (TypeError, ValueError) as ex:
                raise Invalid(f"A row can't be published: {ex}") from ex
            yield event

    @staticmethod
    def _converted(name: str, convert: _Convert | None, column: pa.Array) -> Sequence[Any]:
        try:
            found = column.to_pylist()
            return found if convert is None else [None if each is None else convert(each) for each in found]
        except (ValueError, OverflowError) as ex:
            raise Invalid(f"A row can't be published: column {name}: {ex}") from ex


def merged(event: Any, rest: Any) -> Any:
    """An event with the members that its columns do not have, in objects and arrays of objects too."""
    if isinstance(event, dict) and isinstance(rest, dict):
        return event | {name: merged(event.get(name), each) for name, each in rest.items()}
    if isinstance(event, list) and isinstance(rest, list) and len(event) == len(rest):
        return [merged(*pair) for pair in zip(event, rest, strict=True)]
    return event if rest is None else rest


def _accepted(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata without members that the broker sets; the span context, which is read as JSON, is an object again."""
    found = {name: each for name, each in metadata.items() if name not in OF_THE_BROKER}
    if isinstance(text := found.get("span_ctx"), str):
        found["span_ctx"] = _raw(text)
    return found


def _texts(batch: pa.RecordBatch, name: str) -> Sequence[str | None]:
    return batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows


def _object(text: str | None, column: str) -> dict[str, Any]:
    try:
        found = _OBJECTS.decode(text or "")
    except msgspec.MsgspecError as ex:
        raise Invalid(f"A row can't be published: column {column} is not JSON: {ex}") from ex
    if not isinstance(found, dict):
        raise Invalid(f"A row can't be published: column {column} is no JSON object")
    return found


def _of_field(field: t.StructField, path: str) -> _Convert | None:
    if field.metadata.get(IS_JSON) and isinstance(field.dataType, t.StringType):
        return _raw
    return _of_type(field.dataType, path)


def _of_type(kind: t.DataType, path: str) -> _Convert | None:
    """Return a function that makes a value that the client writes; None if the value is one already."""
    match kind:
        case t.UserDefinedType():
            return _of_type(kind.sqlType(), path)
        case t.StructType():
            _check_names(kind.names, f"Column {path}")
            return _struct([(each.name, _of_field(each, f"{path}.{each.name}")) for each in kind.fields])
        case t.ArrayType():
            return _list(_of_type(kind.elementType, f"{path}[]"))
        case t.MapType():
            if not isinstance(kind.keyType, (t.StringType, t.CharType, t.VarcharType)):
                raise _refused(path, kind, "names of members are text: cast the keys to string")
            return _map(_of_type(kind.valueType, f"{path}{{}}"))
        case _ if type(kind) in _LEAVES:
            return _LEAVES[type(kind)]
    raise _refused(path, kind, "cast it to string, or drop it")


def _refused(path: str, kind: t.DataType, advice: str) -> Invalid:
    return Invalid(f"Column {path} of type {kind.simpleString()} can't be written as JSON: {advice}.")


def _check_names(names: Sequence[str], where: str) -> None:
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise Invalid(f"{where} has several members of one name: {', '.join(twice)}.")


def _struct(fields: Sequence[tuple[str, _Convert | None]]) -> _Convert:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, inner in fields:
            if (each := value[name]) is not None:
                found[name] = each if inner is None else inner(each)
        return found

    return convert


def _list(inner: _Convert | None) -> _Convert | None:
    if inner is None:
        return None
    return lambda value: [None if each is None else inner(each) for each in value]


def _map(inner: _Convert | None) -> _Convert:
    def convert(value: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        return {name: each if each is None or inner is None else inner(each) for name, each in value}

    return convert


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _variant(value: dict[str, bytes]) -> msgspec.Raw:
    return _raw(t.VariantVal(value["value"], value["metadata"]).toJson())


def _raw(text: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as ex:
        raise ValueError(f"{text:.100} is not JSON ({ex})") from ex
    return msgspec.Raw(text.encode())


_LEAVES: dict[type[t.DataType], _Convert | None] = {
    **dict.fromkeys(
        (
            t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType,
            t.DecimalType, t.StringType, t.CharType, t.VarcharType, t.BinaryType, t.DateType, t.TimestampNTZType,
            t.TimeType, t.DayTimeIntervalType, t.NullType,
        )
    ),
    t.TimestampType: _utc,
    t.VariantType: _variant,
}  # fmt: skip
"""Types without parts, with what makes values of them that the client writes."""


RETRY_S = 1
STREAM_BATCH = "streaming.sql.batchId"
"""The property in which Spark gives a task the number of its micro-batch."""

_MULTI_STATUS, _UNPROCESSABLE = 207, 422


class NotPublished(Unavailable):
    """The broker has refused events, or has stored a part of them only."""


class SparkEventWriter(DataSourceArrowWriter):
    """Publishes the rows of a batch query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        Rows(schema)
        self._has_metadata = _has_metadata(options)
        self._options, self._schema = options, schema
        # These are fixed on the driver: the tasks, and their repetitions, get the same values.
        self._job = options.job or str(uuid.uuid4())
        self._now = datetime.now(UTC).isoformat()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a task; blocks until all of them are stored.

        Raises:
            Invalid: a value has no form in JSON.
            NotPublished: the broker refused some.
            ClientError: it does not answer.
        """
        publish(self._options, self._schema, self._prefix(), self._now, iterator, has_metadata=self._has_metadata)
        return WriterCommitMessage()

    def _prefix(self) -> str:
        return f"{self._job}-{_task().partitionId()}"


class EventStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
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
            raise Invalid("Spark does not name the micro-batch.")
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


def _has_metadata(options: SourceOptions) -> bool:
    """Whether the events of the event type to publish to have metadata; blocks until the broker answers."""
    if len(options.event_types) != 1:
        raise Invalid("Name the one event type to publish to by the option event_type.")
    with options.client() as client:
        return event_type(client, options.event_types[0]).category != CATEGORY_WITHOUT_METADATA


def _task() -> TaskContext:
    found = TaskContext.get()  # waits: it does not wait
    assert found is not None, "writers run in tasks"
    return found


def publish(
    options: SourceOptions,
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
        now: when events without `metadata` occurred; None if they must have it.
        batches: the rows.
        has_metadata: whether events of the event type have metadata.

    Raises:
        Invalid: a value has no form in JSON.
        NotPublished: the broker refused some.
    """
    sent = 0
    waiting: list[bytes] = []
    rows = Rows(schema)
    with options.client() as client:
        for event in chain.from_iterable(map(rows.events, batches)):
            number = sent * options.events_per_request + len(waiting)
            waiting.append(values.encode(with_metadata(event, f"{prefix}-{number}", now) if has_metadata else event))
            if len(waiting) == options.events_per_request:
                _send(options, client, f"{prefix}-{sent}", waiting)
                sent, waiting = sent + 1, []
        if waiting:
            _send(options, client, f"{prefix}-{sent}", waiting)


def with_metadata(event: dict[str, Any], name: str, now: str | None) -> dict[str, Any]:
    """An event with `eid` and `occurred_at`.

    Args:
        event: with or without them.
        name: of the row within the job, from which an `eid` is made if the event has none.
        now: for `occurred_at` if the event has none.
    """
    metadata = event.setdefault("metadata", {})
    metadata.setdefault("eid", str(uuid.uuid5(uuid.NAMESPACE_URL, f"rioni:{name}")))
    if now is not None:
        metadata.setdefault("occurred_at", now)
    return event


def _send(options: SourceOptions, client: Client, key: str, events: list[bytes]) -> None:
    name = options.event_types[0]
    deadline = time.monotonic() + options.timeout_s
    while True:
        try:
            answer = client.request(
                "POST",
                "/event-types/{name}/events",
                path={"name": name},
                content=encode_batch(events),
                headers={"Content-Type": "application/json", "Idempotency-Key": key},
                accept=(_UNPROCESSABLE,),
                repeatable=True,
            )
            break
        except (TooManyRequests, Busy) as ex:
            if time.monotonic() > deadline:
                raise NotPublished(f"{options.url} was too busy for {options.timeout_s} s: {ex}") from ex
        time.sleep(RETRY_S)
    if answer.status_code in (_MULTI_STATUS, _UNPROCESSABLE) and answer.content.startswith(b"["):
        raise NotPublished(str(PublishingFailed(name, msgspec.json.decode(answer.content, type=list[ItemResult]))))
    if answer.status_code == _UNPROCESSABLE:
        members = members_of(answer.text, answer.reason_phrase)
        request = f"POST {answer.request.url.path}"
        raise NotPublished(str(problem(_UNPROCESSABLE, members, request=request, retry_after_s=None)))
