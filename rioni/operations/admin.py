"""Reads and exports the audit trail for auditors, with or without a running broker."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.texts import nearest
from rioni.files.extras import requirement
from rioni.installation.database import check_exists, database_url, opened_for_reading, reading_models
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditFilter


if TYPE_CHECKING:
    from rioni.projections.bulk.audit import ExportReport


def audit(config: Config, wanted: AuditFilter = AuditFilter()) -> Iterator[dict[str, Any]]:  # noqa: B008 - immutable
    """Yield the matching audit entries, in order; see `rioni.projections.queries.audit_log`.

    Raises:
        Unavailable: the data does not exist.
    """
    with opened_for_reading(config) as engine:
        yield from audit_log.entries(functools.partial(reading_models, engine), wanted)


def nearest_resource(config: Config, resource: str) -> str | None:
    """The resource with entries most like one that has none; None if none is like it, or the resource itself has some.

    Raises:
        Unavailable: the data does not exist.
    """
    with opened_for_reading(config) as engine, reading_models(engine) as connection:
        found = audit_log.resources(connection)
    names = [f"{kind}:{key}" for kind, key in found] if ":" in resource else [key for _, key in found]
    return None if resource in names else nearest(resource, names)


def export_audit(config: Config, output: Path, wanted: AuditFilter, progress: Progress) -> "ExportReport":
    """Export the audit trail to Parquet with Spark; see `rioni.projections.bulk.audit`."""
    check_exists(config)
    check_spark()
    from rioni.projections.bulk import audit as bulk  # noqa: PLC0415 - an extra

    scratch = config.data.absolute() / "scratch"
    return bulk.export(database_url(config), scratch, output, wanted=wanted, progress=progress)


def check_spark() -> None:
    """Check that Spark can be imported.

    Raises:
        Unavailable: the extra is not installed.
    """
    try:
        import pyspark  # noqa: F401, PLC0415 - an extra
    except ImportError as ex:
        raise Unavailable(f"This needs Spark, and Java 17 or newer: pip install {requirement('spark')}") from ex
