"""Compares a generation with the live read models, puts it in their place in one transaction, and back again."""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Engine, Select, Table, and_, delete, false, insert, inspect, or_, select
from sqlalchemy.schema import CreateIndex, DropIndex, DropTable

from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.hash_chain import LogHead
from rioni.projections.comparison import Difference
from rioni.projections.custom import installed
from rioni.projections.custom_tables import live_tables, set_position
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.generations.generation import (
    PREVIOUS,
    WORKING,
    Generation,
    Known,
    catch_up,
    catch_up_within,
    caught_up_snapshot,
    find,
    head_position,
    record,
    remove,
)
from rioni.projections.projector import Projector
from rioni.projections.tables import READ_MODELS, TRACKING_NAME
from rioni.sql.engines import snapshot, writing
from rioni.sql.log_tables import GENERATIONS, HEAD, TRACKING
from rioni.sql.tracking import SqlTrackingRecorder


def promote(engine: Engine, name: str, now: str) -> Known:
    """Bring a generation up to date and make it live; the former live one is kept as `previous`. Blocks.

    Commands wait for the swap alone: a moment, on SQLite some seconds for a million entries.

    Args:
        engine: the engine of the rebuild, whose lock the caller holds.
        name: the name of the generation.
        now: the time, RFC 3339.

    Returns:
        The record of the generation.

    Raises:
        NotFound: no generation has this name.
        Conflict: another version of the fold has written it, or its tables are those of another release.
        CorruptLog: the log after its position is damaged.
    """
    with snapshot(engine) as connection:
        found = find(connection, name)
        check_usable(connection, found)
    generation = Generation(name, found.tables)
    catch_up(engine, generation)
    swap(engine, generation, kept_at=now)
    return found


def rollback(engine: Engine, now: str) -> Known:
    """Roll back to the previous generation, keeping the current one. Raises as `promote`."""
    return promote(engine, PREVIOUS, now)


def swap(engine: Engine, generation: Generation, *, kept_at: str | None = None) -> None:
    """Put the tables of a generation in the place of the live ones, up to date, in one transaction.

    Args:
        engine: the engine of the rebuild.
        generation: the generation; it no longer exists afterwards.
        kept_at: the time, RFC 3339, if the tables that were live are kept as `previous`; else they are dropped.

    Raises:
        Conflict: only some read models are to be replaced, and the others do not show the end of the log.
    """
    with writing(engine) as connection:
        connection.execute(select(HEAD).with_for_update()).all()
        catch_up_within(connection, generation)
        position = generation.projector.position(connection)
        if not generation.complete and Projector().position(connection) != position:
            raise Conflict("The live read models do not show the end of the log: rebuild all of them, not only some.")
        if engine.dialect.name != "sqlite":
            # All at once, before anything is dropped: a reader of two tables can't get between.
            names = ", ".join(sorted({*READ_MODELS.tables, *generation.tables}))
            connection.exec_driver_sql(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        if generation.name == PREVIOUS:
            # The live tables will need its names.
            remove(connection, WORKING)
            _rename(connection, generation, PREVIOUS, WORKING)
            generation = Generation(WORKING, generation.tables)
        if kept_at is None:
            for name in generation.tables:
                connection.execute(DropTable(live_tables()[name], if_exists=True))
        else:
            _keep(connection, generation, kept_at)
        _rename(connection, generation, generation.name, None)
        _set_position(connection, generation, position)


def _keep(connection: Connection, generation: Generation, now: str) -> None:
    """Rename the live tables to the previous ones."""
    remove(connection, PREVIOUS)
    previous = Generation(PREVIOUS, generation.tables)
    _rename(connection, previous, None, PREVIOUS)
    row = connection.execute(select(TRACKING).where(TRACKING.c.name == TRACKING_NAME)).one()._asdict()
    connection.execute(insert(TRACKING).values(row | {"name": previous.tracking_name}))
    record(connection, previous, now, LogHead(*connection.execute(select(HEAD.c.position, HEAD.c.hash)).one()))


def _set_position(connection: Connection, generation: Generation, position: int) -> None:
    connection.execute(delete(GENERATIONS).where(GENERATIONS.c.name == generation.name))
    connection.execute(delete(TRACKING).where(TRACKING.c.name == generation.tracking_name))
    for projection in installed():
        if projection.table in generation.tables:
            set_position(connection, projection, position)
    if generation.complete:
        # The position may go backwards here, and nowhere else.
        SqlTrackingRecorder.within(connection, fold=FOLD_VERSION).reset(TRACKING_NAME, position)


def _rename(connection: Connection, generation: Generation, before: str | None, after: str | None) -> None:
    """Rename the tables and indexes of a generation; None is for the live ones."""
    for name in generation.tables:
        connection.exec_driver_sql(f"ALTER TABLE {_named(name, before)} RENAME TO {_named(name, after)}")
        indexes = sorted(live_tables()[name].indexes, key=lambda index: str(index.name))
        if connection.dialect.name == "sqlite":
            # PERF: two seconds for a million rows. SQLite can't rename an index, and only live tables have them.
            for index in indexes:
                if before is None:
                    connection.execute(DropIndex(index, if_exists=True))
                if after is None:
                    connection.execute(CreateIndex(index))
            continue
        connection.exec_driver_sql(f"ALTER INDEX {_named(name, before)}_pkey RENAME TO {_named(name, after)}_pkey")
        for index in indexes:
            known, new = (_named(str(index.name), each) for each in (before, after))
            connection.exec_driver_sql(f"ALTER INDEX {known} RENAME TO {new}")


def _named(name: str, generation: str | None) -> str:
    return name if generation is None else f"{name}__{generation}"


def check_usable(connection: Connection, found: Known) -> None:
    """Check that a generation can be brought up to date; raises Conflict if not."""
    if found.fold != FOLD_VERSION:
        raise Conflict(
            f"The read models {found.name} were written by version {found.fold} of the fold; this release has version "
            f"{FOLD_VERSION}. Build them anew: rioni rebuild --into {found.name}"
        )
    generation, seen = Generation(found.name, found.tables), inspect(connection)
    for name, table in generation.tables.items():
        columns = {each["name"] for each in seen.get_columns(table.name)} if seen.has_table(table.name) else set()
        if columns != set(live_tables()[name].columns.keys()):
            raise Conflict(f"The table {table.name} is not one of this release. Build it anew: rioni rebuild")
    if found.position > head_position(connection):
        raise Conflict(f"The read models {found.name} show position {found.position}, which the log does not have.")


# --- Compares a generation with the live read models, row by row, in both directions ---

ATTEMPTS_MAX = 100
ROWS_PER_READ = 100
"""A row may have some hundred kB."""


def compare(engine: Engine, generation: Generation, keys_max: int | None) -> Iterator[Difference]:
    """Compare a generation, brought up to date, with the live tables at one position of the log.

    Writers are not blocked.

    Args:
        engine: the engine of the rebuild.
        generation: to compare.
        keys_max: how many differences to yield per table and kind; None for all.

    Raises:
        Unavailable: the log kept changing, so the comparison could not begin.
    """
    for _ in range(ATTEMPTS_MAX):
        catch_up(engine, generation)
        with caught_up_snapshot(engine, generation) as connection:
            # If a command came in between, both are brought to the same position again.
            if generation.projector.position(connection) == head_position(connection):
                yield from _position(connection)
                yield from _rows(connection, generation, keys_max)
                return
    raise Unavailable("The log grows too fast to compare it with the read models; try again when there is less to do.")


def _position(connection: Connection) -> Iterator[Difference]:
    shown, head = Projector().position(connection), head_position(connection)
    if shown != head:
        live, rebuilt = {"position": shown}, {"position": head}
        yield Difference("tracking", (TRACKING_NAME,), "changed", live=live, rebuilt=rebuilt)


def _rows(connection: Connection, generation: Generation, keys_max: int | None) -> Iterator[Difference]:
    for name, rebuilt in generation.tables.items():
        live, keys = live_tables()[name], rebuilt.primary_key.columns.keys()
        for kind, query in (
            ("missing", _absent(rebuilt, live)),
            ("changed", _changed(rebuilt, live)),
            ("extra", _absent(live, rebuilt)),
        ):
            found = connection.execution_options(yield_per=ROWS_PER_READ).execute(query.limit(keys_max))
            for row in found.mappings():
                yield _difference(name, keys, kind, dict(row))


def _difference(table: str, keys: list[str], kind: str, row: Mapping[str, Any]) -> Difference:
    key = tuple(row[name] for name in keys)
    if kind != "changed":
        return Difference(
            table, key, kind, live={} if kind == "missing" else row, rebuilt=row if kind == "missing" else {}
        )
    names = [name for name in row if not name.startswith(_LIVE) and name not in keys]
    other = [name for name in names if row[name] != row[_LIVE + name]]
    live, rebuilt = {name: row[_LIVE + name] for name in other}, {name: row[name] for name in other}
    return Difference(table, key, kind, live=live, rebuilt=rebuilt)


_LIVE = "live:"
"""The prefix of the names of a live row's columns, in a result that also has the rebuilt row."""


def _absent(here: Table, there: Table) -> Select[Any]:
    """The rows that are here and not there."""
    keys = list(here.primary_key.columns)
    same = and_(*(key == there.c[key.name] for key in keys))
    return select(here).where(~select(there).where(same).exists()).order_by(*keys)


def _changed(rebuilt: Table, live: Table) -> Select[Any]:
    """The rows that are in both, with other values."""
    keys = list(rebuilt.primary_key.columns)
    same = and_(*(key == live.c[key.name] for key in keys))
    other = or_(
        false(), *(column.is_distinct_from(live.c[column.name]) for column in rebuilt.columns if not column.primary_key)
    )
    beside = [column.label(_LIVE + column.name) for column in live.columns]
    return select(rebuilt, *beside).join(live, same).where(other).order_by(*keys)
