"""PySpark, which has no public way to end its Java process, nor to ask for the context of this process.

Reason: PySpark keeps Java until this process ends, and fails in each later session if Java has died. On an upgrade,
look at `SparkContext._ensure_initialized` and `SparkContext.stop`: which class attributes a new context looks at, and
what `stop` asks of Java; and at `SparkSession._instantiatedSession` in `SparkSession.Builder.getOrCreate`.

Versions: pyspark[sql]>=4.3,<4.4.
"""

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def active_context() -> SparkContext | None:
    """The context of this process."""
    return SparkContext._active_spark_context  # noqa: SLF001 - there is no public question


def gateway_of(session: SparkSession) -> Any:
    """The connection of a session to its Java process."""
    return session.sparkContext._gateway  # noqa: SLF001 - there is no public question


def stop_without_java(context: SparkContext) -> None:
    """Stop a context whose Java process has ended."""
    context._jsc = None  # noqa: SLF001 - nothing can be asked of it any more
    context.stop()
    SparkSession._instantiatedSession = None  # noqa: SLF001 - `SparkSession.stop` asks Java before it forgets the session


def forget_gateway() -> None:
    """Have the next context start another Java process."""
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - there is no public way
