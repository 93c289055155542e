"""The format `rioni.log`: the audit log of a broker as a table."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    IsNotNull,
    LessThan,
)
from pyspark.sql.types import StructType

from rioni.client import Client
from rioni.domain.errors import Unavailable
from rioni.domain.timestamps import utc_text
from rioni.spark.options import SourceOptions, parse_options


ROWS = 1_000
TEXTS = ("actor", "realm", "address", "user_agent", "flow_id", "kind", "resource")
EXACT = ("actor", "flow_id", "kind", "resource")
NEVER_NULL = {"position", "recorded_at", "actor", "kind", "resource", "changes"}
SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in TEXTS),
        ("changes", pa.string()),
    ]
)
COLUMNS = f"position bigint, recorded_at timestamp, {', '.join(f'{name} string' for name in TEXTS)}, changes string"


class LogDataSource(DataSource):
    """The changes in the log: by whom, to what, when and from where."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rioni.log"

    def schema(self) -> str:
        """The columns; `changes` is a JSON patch."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the whole log, or what filters leave of it."""
        kind = FilteredLogReader if self._options.pushdown else LogReader
        return kind(self._options, schema.names)

    @cached_property
    def _options(self) -> SourceOptions:
        return parse_options({name.lower(): value for name, value in self.options.items()})


class LogReader(DataSourceReader):
    """Reads the pages of the audit log, in one task, as it is one log."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options, self._names = options, names
        self._query: dict[str, str] = {"order": "asc"}

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002 - there is one
        """The entries, the oldest first.

        Raises:
            ClientError: the broker does not answer, or refuses.
            Unavailable: the broker has another log than at the beginning.
        """
        entries = self._entries()
        while rows := [_row(entry) for entry in islice(entries, ROWS)]:
            yield pa.RecordBatch.from_pylist(rows, SCHEMA).select(self._names)

    def _entries(self) -> Iterator[dict[str, Any]]:
        """The entries of all pages; after each page the last entry before it is read again, to recognize the log."""
        query = {**self._query, "limit": str(ROWS)}
        last: dict[str, Any] | None = None
        with self._options.client() as client:
            while True:
                page = _page(client, query)
                if last is not None:
                    again = _page(client, {**self._query, "after": str(last["position"] - 1), "limit": "1"})["items"]
                    if [_identity(each) for each in again] != [_identity(last)]:
                        raise Unavailable(
                            f"entry {last['position']} of the audit log is not the one that was read before. Was the "
                            "broker restored from a backup, or replaced? Read the log anew."
                        )
                yield from page["items"]
                last = (page["items"] or [last])[-1]
                if (found := page["_links"].get("next")) is None:
                    return
                query["after"] = found["href"].rpartition("after=")[2].partition("&")[0]


def _page(client: Client, query: dict[str, str]) -> Any:
    return orjson.loads(client.request("GET", "/audit", params=query).content)


class FilteredLogReader(LogReader):
    """Asks for less if the query has filters; its DataFrame is good for one query (docs/spark.md)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over what `GET /audit` can filter by: the other filters are left to Spark."""
        return [each for each in filters if not self._take(each)]

    def _take(self, given: Filter) -> bool:
        """Whether the query now expresses a filter fully; each parameter is there once."""
        match given:
            case IsNotNull(attribute=(name,)):
                return name in NEVER_NULL
            case EqualTo(attribute=(name,), value=str() as value) if name in EXACT:
                # A kind without a dot means all kinds of a resource to the broker.
                parameter, text = (name, value) if name != "kind" or "." in value else ("", "")
            case GreaterThan(attribute=("position",), value=int() as value):
                parameter, text = "after", str(max(value, 0))
            case GreaterThanOrEqual(attribute=("recorded_at",), value=datetime() as value):
                parameter, text = _time("since", value)
            case LessThan(attribute=("recorded_at",), value=datetime() as value):
                parameter, text = _time("until", value)
            case _:
                return False
        if not parameter or parameter in self._query:
            return False
        self._query[parameter] = text
        return True


def _time(parameter: str, value: datetime) -> tuple[str, str]:
    """A time that the log can be asked for: its entries have milliseconds."""
    if value.microsecond % 1_000:
        return "", ""
    aware = value if value.tzinfo else value.astimezone()
    return parameter, utc_text(aware.astimezone(UTC))


def _identity(entry: dict[str, Any]) -> tuple[Any, ...]:
    """The values that tell an entry from one of another log at its position, without those that rights may hide."""
    return tuple(entry[name] for name in ("position", "recorded_at", "kind", "resource"))


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: entry.get(name) for name in ("position", *TEXTS)},
        "recorded_at": datetime.fromisoformat(entry["recorded_at"]),
        "changes": orjson.dumps(entry["changes"]).decode(),
    }
