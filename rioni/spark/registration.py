"""Makes the formats `rioni` and `rioni.log` known to a session."""

from pyspark.sql import SparkSession

from rioni.spark.log_source import LogDataSource
from rioni.spark.source import EventDataSource


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the formats `rioni` and `rioni.log`, and switch on that filters are handed to sources in Python.

    The executors need this package too.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(EventDataSource)
    spark.dataSource.register(LogDataSource)
