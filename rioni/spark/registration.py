"""Makes the formats `rioni` and `rioni.log` known to a session."""

import os
import sys

from pyspark.sql import SparkSession

from rioni.spark.log_source import LogDataSource
from rioni.spark.source import EventDataSource


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
    context = getattr(spark, "_sc", None)
    # A session of Spark Connect has no context, and other machines need not have this path.
    if context is None or not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and not context.getConf().get("spark.pyspark.python"):
        context.pythonExec = sys.executable
