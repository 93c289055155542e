"""The format `rioni`: published events as a table, read in batches and streams, and written."""

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from rioni.domain.errors import Invalid
from rioni.lake.columns import OWN, event_schema, evolve
from rioni.lake.reader import event_type, schema_versions
from rioni.lake.rows import check_readable
from rioni.spark.event_reader import EVENT_TYPE, arrow_columns, as_declared, has_marks, read_range, spark_schema
from rioni.spark.log_source import LogDataSource
from rioni.spark.options import SourceOptions, parse_options
from rioni.spark.places import Planner, ReadBounds, ReadRange, bounds_of, split
from rioni.spark.stream_reader import EventStreamReader
from rioni.spark.writer import EventStreamWriter, SparkEventWriter


class EventDataSource(DataSource):
    """Events of one or several event types."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rioni"

    def schema(self) -> StructType:
        """The columns of the event types, in all versions of their schemas; blocks until the broker answers."""
        options = self._options
        return spark_schema(_declared(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of a part of the events."""
        kind = FilteredBatchReader if self._options.pushdown else EventBatchReader
        return kind(self._options, self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return EventStreamReader(self._options, self._columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's
        """A publisher of rows."""
        _check_appends(overwrite)
        return SparkEventWriter(self._options, schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> DataSourceStreamArrowWriter:
        """A publisher of the rows of micro-batches."""
        _check_appends(overwrite)
        return EventStreamWriter(self._options, schema)

    def _columns(self, schema: StructType) -> pa.Schema:
        """The columns to read.

        Raises:
            Invalid: the user wants one of a type as which values of JSON can't be read.
        """
        columns = arrow_columns(schema)
        if not has_marks(columns):
            columns = as_declared(columns, _declared(self._options))
        check_readable(columns)
        return columns

    @cached_property
    def _options(self) -> SourceOptions:
        return parse_options({name.lower(): value for name, value in self.options.items()})


def _check_appends(overwrite: bool) -> None:  # noqa: FBT001 - as Spark has it
    if overwrite:
        raise Invalid('Published events are never replaced: write with mode("append").')


def _declared(options: SourceOptions) -> pa.Schema:
    with Planner(options) as planner:
        return table_schema(options, planner.event_types)


def table_schema(options: SourceOptions, names: Iterable[str]) -> pa.Schema:
    """The columns that hold the events of some event types, in all versions of their schemas.

    Raises:
        Invalid: a schema can't be read or has too many columns.
        ClientError: the broker does not answer, or refuses.
    """
    found = pa.schema([])
    names = tuple(names)
    with options.client() as client:
        for name in names:
            category = event_type(client, name).category
            for kind, text in schema_versions(client, name):
                found = evolve(found, event_schema(kind, text, category))
    ordered = [each for each in found if each.name not in OWN]
    if len(names) > 1:
        ordered.append(pa.field(EVENT_TYPE, pa.string()))
    return pa.schema([*ordered, *OWN.items()])


class EventBatchReader(DataSourceReader):
    """Reads the events that are there when the query is planned, or those of them that the options name."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._bounds = ReadBounds()

    def partitions(self) -> list[ReadRange]:
        """A range for each task; blocks until the broker answers."""
        with Planner(self._options) as planner:
            # Identities are read before the places: the tasks check that these are of the same event type.
            identities = planner.identities(planner.event_types)
            starts, ends = self._bounds.narrow(planner.starts(), planner.ends())
            return list(split(planner, starts, ends, identities, self._options.events_per_task))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The events of a range, as Arrow batches."""
        if not isinstance(partition, ReadRange):
            return iter(())  # Spark makes a separate task if there is nothing to read.
        return read_range(self._options, self._schema, partition, self._bounds.admits if self._bounds.places else None)


class FilteredBatchReader(EventBatchReader):
    """Reads less if the query has filters; its DataFrame is good for one query (docs/spark.md)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over comparisons of `_partition`, `_offset` and `_event_type`; the others are left to Spark."""
        self._bounds, rest = bounds_of(filters)
        return rest


# --- Makes the formats `rioni` and `rioni.log` known to a session ---

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the formats `rioni` and `rioni.log`, and switch on that filters are handed to sources in Python.

    The executors need this package too. On this machine they run the Python of the driver, unless `PYSPARK_PYTHON` or
    `spark.pyspark.python` names another one: Spark's own choice is the first `python3` of the PATH, also in a virtual
    environment that is not activated.
    """
    _run_this_python(spark)
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(EventDataSource)
    spark.dataSource.register(LogDataSource)


def _run_this_python(spark: SparkSession) -> None:
    context = getattr(spark, "sparkContext", None)
    # A session of Spark Connect has no context, and other machines need not have this path.
    if context is None or not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and not context.getConf().get("spark.pyspark.python"):
        context.pythonExec = sys.executable
