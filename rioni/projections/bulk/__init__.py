"""Rebuilds and exports of the whole log with Spark; needs the extra `rioni[spark]`."""

from rioni.projections.bulk.session import spark_session


__all__ = ["spark_session"]
