"""Compares a generation with the live read models, row by row, in both directions."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Select, Table, and_, false, or_, select

from rioni.domain.errors import Unavailable
from rioni.projections.custom_tables import live_tables
from rioni.projections.generations.generation import Generation, catch_up, caught_up_snapshot, head_position
from rioni.projections.projector import Projector
from rioni.projections.tables import TRACKING_NAME


ATTEMPTS_MAX = 100
ROWS_PER_READ = 100
"""A row may have some hundred kB."""

Values = Mapping[str, Any]


class Difference(NamedTuple):
    """A row of the live read models that is not what the log says."""

    table: str
    key: tuple[str | int, ...]
    """The row's primary key."""
    kind: str
    """What the live row is: `missing`, `changed` or `extra`."""
    live: Values
    """The columns of the live row that differ; all of them where it is extra."""
    rebuilt: Values
    """The same columns as the log says they are; all of them where the row is missing."""


def compare(engine: Engine, generation: Generation, keys_max: int | None) -> Iterator[Difference]:
    """Compare a generation, brought up to date, with the live tables at one position of the log.

    Writers are not blocked.

    Args:
        engine: of the rebuild.
        generation: to compare.
        keys_max: how many differences to yield per table and kind; None for all.

    Raises:
        Unavailable: the log kept changing, so the comparison could not begin.
    """
    for _ in range(ATTEMPTS_MAX):
        catch_up(engine, generation)
        with caught_up_snapshot(engine, generation) as connection:
            # Where a command has come between, both are brought to the same position again.
            if generation.projector.position(connection) == head_position(connection):
                yield from _position(connection)
                yield from _rows(connection, generation, keys_max)
                return
    raise Unavailable("The log grows too fast to compare it with the read models; try again when there is less to do.")


def _position(connection: Connection) -> Iterator[Difference]:
    shown, head = Projector().position(connection), head_position(connection)
    if shown != head:
        yield Difference("tracking", (TRACKING_NAME,), "changed", {"position": shown}, {"position": head})


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


def _difference(table: str, keys: list[str], kind: str, row: Values) -> Difference:
    key = tuple(row[name] for name in keys)
    if kind != "changed":
        values = dict(row)
        return Difference(table, key, kind, *(({}, values) if kind == "missing" else (values, {})))
    names = [name for name in row if not name.startswith(_LIVE) and name not in keys]
    other = [name for name in names if row[name] != row[_LIVE + name]]
    return Difference(
        table, key, kind, {name: row[_LIVE + name] for name in other}, {name: row[name] for name in other}
    )


_LIVE = "live:"
"""Before the names of a live row's columns, where it stands beside the rebuilt one."""


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
