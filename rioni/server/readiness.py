"""Defines the checks of `/livez` and `/readyz`."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from functools import partial

from rioni.domain.access.authorization import EVERYBODY, Mode
from rioni.domain.errors import CommitOutcomeUnknown, NotFound, RioniError, Unavailable
from rioni.domain.ports.host import Examined, Health, examine
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry
from rioni.domain.system.system_events import AUDIT_LOG
from rioni.domain.timestamps import milliseconds, rfc3339
from rioni.files.plain import file_errors
from rioni.files.signing_key import load_signing_key
from rioni.http.health_checks import Look
from rioni.installation.from_config import NO_SHARED_KEY, key_file
from rioni.installation.infrastructure import Infrastructure
from rioni.installation.log_tree import key_file_findings
from rioni.projections.queries import audit_log
from rioni.storage.clock import STEADY
from rioni.storage.log.event_log import CLOCK_BEHIND_MAX_MS
from rioni.storage.sql.database_locks import DatabaseLease
from rioni.storage.sql.store_marks import write_marks


DISK_FREE_BYTES_MIN = 2**30
"""Threshold of free space for a warning."""

OPEN_AUDIT_LOG = (
    f"Everybody who is authenticated reads {AUDIT_LOG}. Change the readers in its authorization section, or set "
    "system_events_authorization to *:* if that is wanted."
)

WRITE_ADVICE = (
    "Look for a full disk, a quota, a limit on the length of files (ulimit -f), a file system that is read-only, and "
    "the owner of the files."
)

READINESS = "readiness"
"""Name of the mark that is written to try whether the database can be written."""

DISK_FULL_BYTES = 16 * 2**20
"""Threshold for a failed check: SQLite's write-ahead logs alone may need as much."""


def readiness(base: Infrastructure, held: DatabaseLease) -> dict[str, Look]:
    """Return the checks of everything that requests need; `held` is the lease of the database."""
    coordinator = base.adapters.coordinator
    looks: dict[str, Look] = {
        "database": lambda: _database(base, held),
        "log": lambda: _log(base),
        "signing_key": lambda: _signing_key(base),
        "access": lambda: _access(base),
        "disk": lambda: base.pools.files(_disk, base),
        "kafka": lambda: _kafka(base),
        "clock": lambda: _clock(base),
    }
    if base.config.clustered:
        assert isinstance(coordinator, Examined)
        looks["zookeeper"] = coordinator.health
    else:
        looks["events"] = lambda: _events(base)
        looks["coordination"] = lambda: _coordination(base)
    return looks


def _database(base: Infrastructure, held: DatabaseLease) -> Health:
    """Try a durable write, with which every change begins and ends."""
    with _writing("The registry"):
        base.pools.database(write_marks, base.log.engine, {READINESS: rfc3339(base.clock.now_ms())})
    detail = "PostgreSQL" if base.log.engine.dialect.name == "postgresql" else "SQLite"
    return Health(reason=held.refusal, detail=detail)


def _log(base: Infrastructure) -> Health:
    """Check how far this process lags behind the log, after catching up as before every request."""
    base.registry.refresh()
    head, applied = base.pools.database(base.log.head).position, base.registry.position
    return Health(detail=f"{applied} entries applied, {max(0, head - applied)} left")


def _events(base: Infrastructure) -> Health | None:
    """Try a durable write to each storage on the disk."""
    storages = [storage for storage in base.registry.storages() if storage.storage_type == EMBEDDED]
    return _of_storages(base, storages) if storages else None


def _coordination(base: Infrastructure) -> Health:
    """Try durable writes as streams and commits make them, and whether the workers can elect one of them."""
    for what, adapter in (("Cursors", base.adapters.coordinator), ("Limits of streams", base.adapters.quota)):
        with _writing(what):
            examine(adapter)
    base.adapters.leadership.held()
    return Health()


@contextlib.contextmanager
def _writing(what: str) -> Iterator[None]:
    """Explain a failed write in the error, with advice."""
    try:
        yield
    except CommitOutcomeUnknown as ex:
        cause = str(ex.__cause__).splitlines()[0]
        raise Unavailable(f"{what} can't be written: {cause}. {WRITE_ADVICE}") from ex
    except Unavailable as ex:
        raise Unavailable(f"{what} can't be written: {ex} {WRITE_ADVICE}") from ex


def _signing_key(base: Infrastructure) -> Health:
    """Check that the key can sign for the log, without signing."""
    path = key_file(base.config)
    try:
        base.pools.files(partial(load_signing_key, path, create=False))
        found = base.pools.database(base.read, lambda connection: list(key_file_findings(connection, path)))
        wrong = found[0].removeprefix("log, signing keys: ") if found else ""
    except Unavailable as ex:
        wrong = str(ex)
    # Nodes without the setting have their own keys; then one of them signs.
    if base.config.clustered and base.config.log_signing_key is None:
        return Health(warnings=(f"{NO_SHARED_KEY} {wrong}".strip(),))
    return Health(reason=wrong)


def _access(base: Infrastructure) -> Health:
    config = base.config
    if not config.unprotected:
        warnings = (OPEN_AUDIT_LOG,) if config.auth_mode != Mode.OFF and _audit_log_is_open(base) else ()
        return Health(detail=f"auth_mode {config.auth_mode}", warnings=warnings)
    warning = f"auth_mode is off, and host {config.host} is reachable from other machines: all permissions are open."
    return Health(detail="auth_mode off", warnings=(warning,))


def _audit_log_is_open(base: Infrastructure) -> bool:
    """Whether all authenticated clients can read the audit log without a setting for that: an old default."""
    if base.config.system_events_authorization == "*:*":
        return False
    try:
        section = base.registry.event_type(AUDIT_LOG).authorization
    except NotFound:
        return False
    return section is None or EVERYBODY in section.readers


def _clock(base: Infrastructure) -> Health:
    """Check the clock against its own past, and against the last entry of the log."""
    warnings = [STEADY.warning] if STEADY.warning else []
    recorded_at, now_ms = base.pools.database(base.read, audit_log.last_recorded_at), base.clock.now_ms()
    behind_ms = milliseconds(recorded_at) - now_ms if recorded_at else 0
    if behind_ms > CLOCK_BEHIND_MAX_MS:
        warnings.append(
            f"The machine's clock is {behind_ms // 1_000} s behind the last entry of the log, recorded at "
            f"{recorded_at}: it was set back, or a clock was ahead then. New entries get that time until the clock has "
            "passed it. Correct the clock, if it is wrong."
        )
    return Health(warnings=tuple(warnings))


def _disk(base: Infrastructure) -> Health:
    with file_errors("The disk of the data directory can't be used"):
        free = shutil.disk_usage(base.directory.path).free
    detail = f"{free / 2**30:.1f} GiB free"
    if free < DISK_FULL_BYTES:
        return Health(reason="The disk of the data directory is full.", detail=detail)
    nearly_full = ("The disk of the data directory is nearly full.",)
    return Health(detail=detail, warnings=nearly_full if free < DISK_FREE_BYTES_MIN else ())


def _kafka(base: Infrastructure) -> Health | None:
    """Check the clusters of all storages; failures of non-default storages are only warnings."""
    storages = [storage for storage in base.registry.storages() if storage.storage_type == KAFKA]
    if not storages and base.config.kafka is None:
        return None
    return _of_storages(base, storages)


def _of_storages(base: Infrastructure, storages: Sequence[StorageEntry]) -> Health:
    details, warnings = [], []
    for storage in storages:
        try:
            with _writing("Events") if storage.storage_type == EMBEDDED else contextlib.nullcontext():
                health = examine(base.adapters.stores.of(storage.id))
        except RioniError as ex:
            if storage.default:
                raise
            warnings.append(f"storage {storage.id}: {ex}")
            continue
        details.append(f"storage {storage.id}: {health.detail or 'writable'}")
        warnings += [f"storage {storage.id}: {each}" for each in health.warnings]
    return Health(detail=", ".join(details), warnings=tuple(warnings))
