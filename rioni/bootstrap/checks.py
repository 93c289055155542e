"""What `/livez` and `/readyz` look at."""

import shutil

from rioni.bootstrap.foundation import Foundation
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.health import Examined, Health, examine
from rioni.domain.storage_entry import KAFKA
from rioni.http.examination import Look
from rioni.storage.occupancy import Occupancy


DISK_FREE_BYTES_MIN = 2**30
"""With less there is a warning."""

DISK_FULL_BYTES = 16 * 2**20
"""With less nothing can be counted on: SQLite's write-ahead logs alone may need it."""


def readiness(base: Foundation, held: Occupancy) -> dict[str, Look]:
    """What requests need; `held` keeps the database from others."""
    looks: dict[str, Look] = {
        "database": lambda: _database(base, held),
        "log": lambda: _log(base),
        "disk": lambda: base.offload(_disk, base),
        "kafka": lambda: _kafka(base),
    }
    coordinator = base.adapters.coordinator
    if isinstance(coordinator, Examined):
        looks["zookeeper"] = coordinator.health
    return looks


def _database(base: Foundation, held: Occupancy) -> Health:
    base.offload(base.log.head)
    detail = "PostgreSQL" if base.log.engine.dialect.name == "postgresql" else "SQLite"
    return Health(reason=held.refusal, detail=detail)


def _log(base: Foundation) -> Health:
    """How far this process has followed the log, which it does before every request."""
    base.registry.refresh()
    head, applied = base.offload(base.log.head).position, base.registry.position
    return Health(detail=f"{applied} entries applied, {max(0, head - applied)} left")


def _disk(base: Foundation) -> Health:
    try:
        free = shutil.disk_usage(base.directory.path).free
    except OSError as ex:
        raise Unavailable(f"The disk of the data directory can't be used: {ex.strerror}.") from ex
    detail = f"{free / 2**30:.1f} GiB free"
    if free < DISK_FULL_BYTES:
        return Health(reason="The disk of the data directory is full.", detail=detail)
    nearly_full = ("The disk of the data directory is nearly full.",)
    return Health(detail=detail, warnings=nearly_full if free < DISK_FREE_BYTES_MIN else ())


def _kafka(base: Foundation) -> Health | None:
    """All clusters that storages name; one that new event types do not begin in is not everybody's trouble."""
    storages = [storage for storage in base.registry.storages() if storage.storage_type == KAFKA]
    if not storages and base.config.kafka is None:
        return None
    details, warnings = [], []
    for storage in storages:
        try:
            health = examine(base.adapters.stores.of(storage.id))
        except RioniError as ex:
            if storage.default:
                raise
            warnings.append(f"storage {storage.id}: {ex}")
            continue
        details.append(f"storage {storage.id}: {health.detail}")
        warnings += [f"storage {storage.id}: {each}" for each in health.warnings]
    return Health(detail=", ".join(details), warnings=tuple(warnings))
