"""The tables of users' own projections, and how they follow the log live."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import structlog
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    MetaData,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
)
from sqlalchemy.schema import CreateTable, DropTable

from rioni.domain.ports.event_log import LogEntry
from rioni.projections.custom import KEY, BrokenProjection, Projection, installed, resource_of
from rioni.projections.projector import Projector
from rioni.projections.tables import READ_MODELS
from rioni.sql.log_tables import TRACKING
from rioni.sql.tracking import SqlTrackingRecorder


_TYPES = {str: Text, int: BigInteger, float: Double, bool: Boolean}
_log = structlog.get_logger("rioni.projections")


def table_of(projection: Projection) -> Table:
    """The table of a projection."""
    columns: list[Column[Any]] = [Column(name, _TYPES[kind]) for name, kind in projection.columns.items()]
    return Table(projection.table, MetaData(), Column(KEY, Text, primary_key=True), *columns)


@cache
def live_tables() -> Mapping[str, Table]:
    """The tables of all read models, those of installed projections included, by name."""
    own = {each.table: table_of(each) for each in installed()}
    return {**{str(name): table for name, table in READ_MODELS.tables.items()}, **own}


def tracking_name(projection: Projection) -> str:
    """The name under which the position of a projection is kept in `tracking`."""
    return f"projection:{projection.name}"


def position(connection: Connection, projection: Projection) -> int | None:
    """The last position of the log that the table of a projection shows; None if this version has no table."""
    row = connection.execute(select(TRACKING).where(TRACKING.c.name == tracking_name(projection))).first()
    return row.position if row is not None and row.fold == projection.version else None


def set_position(connection: Connection, projection: Projection, shown: int) -> None:
    """Note the version and position that the table of a projection shows."""
    SqlTrackingRecorder.within(connection, fold=projection.version).reset(tracking_name(projection), shown)


def prepare(connection: Connection, projections: Sequence[Projection]) -> None:
    """Make the tables that are missing, or that another version of the function has filled.

    The caller's transaction has to hold the lock of the log, so that no other node does the same.
    """
    for projection in projections:
        table = table_of(projection)
        if position(connection, projection) is None or not inspect(connection).has_table(table.name):
            connection.execute(DropTable(table, if_exists=True))
            connection.execute(CreateTable(table))
            set_position(connection, projection, 0)


def change_row(connection: Connection, projection: Projection, table: Table, entry: LogEntry) -> None:
    """Fold an entry into a table, in the caller's transaction.

    Raises:
        BrokenProjection: the function failed; the table is as it was.
    """
    if not projection.follows(entry):
        return
    of_resource = table.c[KEY] == resource_of(entry)
    before = connection.execute(select(table).where(of_resource)).mappings().first()
    after = projection.next_row(None if before is None else dict(before), entry)
    if before is not None:
        connection.execute(delete(table).where(of_resource))
    if after is not None:
        connection.execute(insert(table).values(**after))


class CustomProjector:
    """Lets installed projections follow the log, each one from the position that its table shows.

    A projection whose function fails stays at the entry before, and the broker goes on.
    """

    def __init__(self, projections: Sequence[Projection]) -> None:
        self._tables = {each.name: table_of(each) for each in projections}
        self._projections = projections
        self._broken: set[str] = set()

    def apply(self, connection: Connection, entries: Sequence[LogEntry]) -> None:
        """Fold entries in order, in the caller's transaction, for the projections that are up to date."""
        if entries:
            for projection in self._projections:
                if position(connection, projection) == entries[0].position - 1:
                    self._follow(connection, projection, entries)

    def behind(self, connection: Connection, head: int) -> Collection[int]:
        """The positions of the projections that lag behind the log; broken projections are left out."""
        shown = {position(connection, each) for each in self._projections if each.name not in self._broken}
        return [last for last in shown if last is not None and last < head]

    def _follow(self, connection: Connection, projection: Projection, entries: Sequence[LogEntry]) -> None:
        if projection.name in self._broken:
            return
        shown = entries[0].position - 1
        for entry in entries:
            try:
                change_row(connection, projection, self._tables[projection.name], entry)
            except BrokenProjection as ex:
                self._broken.add(projection.name)
                _log.exception(f"{ex} It is not brought up to date until the broker is started again.")
                break
            shown = entry.position
        set_position(connection, projection, shown)


class GenerationProjector(Projector):
    """Writes the tables of a generation, which all show the same position.

    Args:
        tables: the tables of the generation, by the names of the live ones.
        tracking_name: under which name the position is kept.
    """

    def __init__(self, tables: Mapping[str, Table], tracking_name: str) -> None:
        super().__init__(tables, tracking_name=tracking_name)
        self._custom = [(each, tables[each.table]) for each in installed() if each.table in tables]

    def apply(self, connection: Connection, entries: Iterable[LogEntry]) -> None:
        """Fold entries; see `Projector.apply`. Raises BrokenProjection too."""
        followed = list(entries)
        super().apply(connection, followed)
        for entry in followed:
            for projection, table in self._custom:
                change_row(connection, projection, table, entry)


class LiveProjector(Projector):
    """Writes all live read models, those of users' projections included."""

    def __init__(self, projections: Sequence[Projection]) -> None:
        super().__init__()
        self._custom = CustomProjector(projections)

    def apply(self, connection: Connection, entries: Iterable[LogEntry]) -> None:
        """Fold entries; see `Projector.apply`."""
        followed = list(entries)
        super().apply(connection, followed)
        self._custom.apply(connection, followed)
