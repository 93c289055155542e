"""Published events and the admin log as data sources of Spark; needs the extra `rioni[spark]`."""

from rioni.spark.registration import register


__all__ = ["register"]
