"""Compares rebuilt read models with the live ones, row by row, in both directions."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Select, Table, and_, false, or_, select

from rioni.domain.errors import Unavailable
from rioni.projections.bulk import shadow
from rioni.projections.projector import Projector
from rioni.projections.tables import READ_MODELS, TRACKING_NAME


ATTEMPTS_MAX = 100
KEYS_NAMED_MAX = 10


class Difference(NamedTuple):
    """A row of the live read models that is not what the log says."""

    table: str
    key: tuple[str | int, ...]
    """The row's primary key."""
    kind: str
    """What the live row is: `missing`, `changed` or `extra`."""


def compare(engine: Engine, keys_max: int = KEYS_NAMED_MAX) -> list[Difference]:
    """Compare the loaded shadows with the live tables at one position of the log; writers are not blocked.

    Args:
        engine: as from `shadow.open_engine`.
        keys_max: how many differences to name per table and kind.

    Raises:
        Unavailable: the log kept changing, so the comparison could not begin.
    """
    for _ in range(ATTEMPTS_MAX):
        shadow.catch_up(engine)
        with shadow.caught_up_snapshot(engine) as connection:
            # Where a command has come between, both are brought to the same position again.
            if shadow.PROJECTOR.position(connection) == shadow.head_position(connection):
                return [*_position(connection), *_rows(connection, keys_max)]
    raise Unavailable("The log grows too fast to compare it with the read models; try again when there is less to do.")


def _position(connection: Connection) -> Iterator[Difference]:
    if Projector().position(connection) != shadow.head_position(connection):
        yield Difference("tracking", (TRACKING_NAME,), "changed")


def _rows(connection: Connection, keys_max: int) -> Iterator[Difference]:
    for live in READ_MODELS.sorted_tables:
        rebuilt = shadow.SHADOWS[live.name]
        for kind, query in (
            ("missing", _absent(rebuilt, live)),
            ("changed", _changed(rebuilt, live)),
            ("extra", _absent(live, rebuilt)),
        ):
            for row in connection.execute(query.limit(keys_max)):
                yield Difference(live.name, tuple(row), kind)


def _absent(here: Table, there: Table) -> Select[Any]:
    """The keys that are here and not there."""
    keys = list(here.primary_key.columns)
    same = and_(*(key == there.c[key.name] for key in keys))
    return select(*keys).where(~select(there).where(same).exists()).order_by(*keys)


def _changed(rebuilt: Table, live: Table) -> Select[Any]:
    """The keys that are in both, with other values."""
    keys = list(rebuilt.primary_key.columns)
    same = and_(*(key == live.c[key.name] for key in keys))
    other = or_(
        false(), *(column.is_distinct_from(live.c[column.name]) for column in rebuilt.columns if not column.primary_key)
    )
    return select(*keys).join(live, same).where(other).order_by(*keys)
