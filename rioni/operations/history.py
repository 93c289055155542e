"""Reads the audit trail and former states for auditors, while the broker runs or on a copy; changes nothing."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection

from rioni.config.settings import Config
from rioni.domain.aggregates import AGGREGATES
from rioni.domain.audit_events import shown_state
from rioni.domain.errors import Invalid, NotFound
from rioni.domain.texts import nearest, proposal
from rioni.files.extras import check_spark
from rioni.installation.database import check_exists, database_url, opened_for_reading, reading_models
from rioni.projections.generations.rebuilds import Progress
from rioni.projections.queries import audit_log, past
from rioni.projections.queries.audit_log import AuditFilter, AuditQuery, PageStart
from rioni.projections.queries.past import Moment


if TYPE_CHECKING:
    from rioni.projections.bulk.audit import AuditExportReport


# --- The audit trail ---


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


def export_audit(config: Config, output: Path, wanted: AuditFilter, progress: Progress) -> "AuditExportReport":
    """Export the audit trail to Parquet with Spark; see `rioni.projections.bulk.audit`."""
    check_exists(config)
    check_spark()
    from rioni.projections.bulk import audit as bulk  # noqa: PLC0415 - an extra

    scratch = config.data.absolute() / "scratch"
    return bulk.export(database_url(config), scratch, output, wanted=wanted, progress=progress)


# --- Former states ---

ENTRIES_PER_READ = 250
EVENT_TYPE, SETTINGS = "event-type", "settings"


class LogStep(NamedTuple):
    """A state of a resource and the next one."""

    resource: str
    """Kind and key."""
    before: Any
    """The state before the change, as decoded from JSON; None if there was none."""
    after: Any
    entry: dict[str, Any] | None = None
    """The row of the audit log, if one entry led from the one to the other."""


def history(config: Config, resource: str) -> Iterator[LogStep]:
    """Yield all entries of a resource, oldest first.

    Args:
        config: names the data.
        resource: kind and key; a name alone is that of an event type.

    Raises:
        NotFound: it has no entries.
        Unavailable: the data does not exist.
    """
    kind, key = _named(resource)
    with opened_for_reading(config) as engine:
        place: PageStart | None = PageStart(ascending=True)
        found = False
        while place is not None:
            with reading_models(engine) as connection:
                page = audit_log.page(connection, AuditQuery(resource=(kind, key)), place, ENTRIES_PER_READ)
            for row in page.rows:
                found = True
                before, after = (shown_state(kind, row[name]) for name in ("before", "after"))
                yield LogStep(f"{kind}:{key}", before, after, audit_log.with_client_parts(row))
            place = None if page.next is None else PageStart(ascending=True, after=page.next)
        if not found:
            with reading_models(engine) as connection:
                raise _without_entries(connection, kind, key)


def state_as_of(config: Config, resource: str, moment: int | str | None) -> tuple[int, Any]:
    """A position, and the state of a resource there.

    Args:
        config: names the data.
        resource: as for `history`.
        moment: a position, or a time as the log writes it; None for the end of the log.

    Raises:
        NotFound: it did not exist.
        Invalid: the log does not reach there.
        Unavailable: the data does not exist.
    """
    kind, key = _named(resource)
    with opened_for_reading(config) as engine, reading_models(engine) as connection:
        position = _position(connection, moment)
        body = past.state(connection, kind, key, Moment(position))
        if body is None and not _has_entries(connection, kind, key):
            raise _without_entries(connection, kind, key)
    if body is None:
        raise NotFound(f"There was no {kind}:{key} at position {position} of the log.")
    return position, shown_state(kind, body)


def differences(
    config: Config, start: int | str, end: int | str | None, resource: str | None = None
) -> Iterator[LogStep]:
    """Yield the differences between two positions, by kind and key; states between them do not count.

    Args:
        config: names the data.
        start: a position, 0 for an empty broker, or a time as the log writes it.
        end: a position or a time, as `start`; None for the end of the log.
        resource: only this one, as for `history`.

    Raises:
        Invalid: the log does not reach there, or the end is before the start.
        NotFound: there never was such a resource.
        Unavailable: the data does not exist.
    """
    with opened_for_reading(config) as engine:
        with reading_models(engine) as connection:
            first, last = _position(connection, start), _position(connection, end)
            if last < first:
                raise Invalid(f"Position {last} is before position {first}: name the earlier one first.")
            changed = past.changed_between(connection, first, last) if resource is None else [_named(resource)]
            # Settings are there before anybody changes them.
            if resource not in (None, SETTINGS) and not _has_entries(connection, *changed[0]):
                raise _without_entries(connection, *changed[0])
        for kind, key in changed:
            with reading_models(engine) as connection:
                bodies = [past.state(connection, kind, key, Moment(position)) for position in (first, last)]
            if bodies[0] != bodies[1]:
                yield LogStep(f"{kind}:{key}", *(shown_state(kind, body) for body in bodies))


def _has_entries(connection: Connection, kind: str, key: str) -> bool:
    return bool(audit_log.page(connection, AuditQuery(resource=(kind, key)), PageStart(), 1).rows)


def _without_entries(connection: Connection, kind: str, key: str) -> NotFound:
    """The error about a resource that never was."""
    known = (f"{each}:{other}" for each, other in audit_log.resources(connection) if each == kind)
    return NotFound(f"The log has no entry of {kind}:{key}{proposal(f'{kind}:{key}', known)}")


def _named(resource: str) -> tuple[str, str]:
    """The kind and the key; raises Invalid."""
    kind, colon, key = resource.partition(":")
    if colon and kind not in AGGREGATES:
        listed = f"; there are {', '.join(AGGREGATES)}."
        raise Invalid(f"There is no kind of resources {kind}{proposal(kind, AGGREGATES, listed)}")
    if colon:
        return kind, key
    return (kind, kind) if resource == SETTINGS else (EVENT_TYPE, resource)


def _position(connection: Connection, moment: int | str | None) -> int:
    head = audit_log.head(connection)
    if moment is None:
        return head
    position, _ = audit_log.resolved(connection, moment)
    if position > head:
        raise Invalid(f"The log ends at position {head}; there is no position {position}.")
    return position
