"""Published events and the admin log as data sources of Spark; needs the extra `rioni[spark]`."""

from rioni.files.extras import requirement


try:
    import pyspark  # noqa: F401 - the error names this package, if the extra is missing

    from rioni.spark.source import register
except ModuleNotFoundError as ex:
    if (ex.name or "").startswith("rioni"):
        raise
    raise ModuleNotFoundError(
        f"rioni.spark needs {ex.name}: pip install {requirement('spark')}. Spark needs Java 17 or newer, too.",
        name=ex.name,
    ) from ex


__all__ = ["register"]
