"""Rows of Spark as events: each value as the JSON that the client writes, or refused with the path of its column."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as t

from rioni.client import values
from rioni.domain.errors import Invalid
from rioni.lake.columns import CORRUPT, OFFSET, PARTITION, REST
from rioni.spark.event_reader import EVENT_TYPE
from rioni.spark.json_columns import IS_JSON


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
    """Metadata without what the broker sets; the span context, which is read as JSON, is an object again."""
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
    """What makes a value that the client writes; None where it is one."""
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
