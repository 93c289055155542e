"""One generation: its tables, its position in the log, and how it is brought up to date."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, MetaData, Table, delete, insert, inspect, quoted_name, select, update
from sqlalchemy.schema import CreateIndex, CreateTable, DropTable

from rioni.domain.errors import Invalid, NotFound
from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.domain.texts import proposal
from rioni.projections.custom import installed
from rioni.projections.custom_tables import GenerationProjector, live_tables
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.log_rows import check_chain, log_entry
from rioni.projections.tables import READ_MODELS, STATES, TRACKING_NAME
from rioni.sql.engines import snapshot, turn, writing
from rioni.sql.log_tables import GENERATIONS, HEAD, LOG, TRACKING
from rioni.sql.tracking import SqlTrackingRecorder


WORKING = "new"
"""The generation in which a rebuild works that replaces the live read models."""
PREVIOUS = "previous"
"""The generation that was live before."""
RESERVED = ("live", WORKING, PREVIOUS)

NAME = re.compile("[a-z][a-z0-9_]{0,19}")
"""PostgreSQL cuts names of more than 63 bytes."""

ENTRIES_PER_CATCH_UP = 500
"""How many entries may be caught up while the log is locked: a fraction of a second."""

MODELS: Mapping[str, Sequence[str]] = {
    "states": ("states",),
    "event-types": ("event_types", "schemas"),
    "timelines": ("timelines",),
    "subscriptions": ("subscriptions", "subscription_event_types"),
    "storages": ("storages",),
    "audit-log": ("audit_log",),
}
"""The read models as users name them, and their tables."""


class Generation:
    """A second set of tables of some read models, separate from the live ones.

    Args:
        name: part of the names of the tables.
        tables: names of read models, by default all; the states are always included, since the fold continues from
            them.
    """

    def __init__(self, name: str, tables: Collection[str] | None = None) -> None:
        self.name, metadata = name, MetaData()
        wanted = live_tables().keys() if tables is None else {STATES.name, *tables}
        self.tables: Mapping[str, Table] = {
            each: _beside(live, name, metadata) for each, live in live_tables().items() if each in wanted
        }
        """The tables that may replace the live ones, by the names of these."""
        self.tracking_name = f"{TRACKING_NAME}__{name}"
        self.projector = GenerationProjector(self.tables, self.tracking_name)
        """The live projection, writing into these tables; it keeps their position under a separate name."""

    @property
    def complete(self) -> bool:
        """Whether it has all read models except those of users, which have separate positions."""
        return self.tables.keys() >= READ_MODELS.tables.keys()


class Known(NamedTuple):
    """The record of a generation."""

    name: str
    tables: Sequence[str]
    created_at: str
    position: int
    """The last entry of the log that it shows."""
    fold: int
    """The version of the fold that wrote it."""
    checked: LogHead
    """The position up to which the log was checked, and its hash there."""


def models_named(names: str) -> list[str]:
    """The tables of read models whose names are given, separated by commas.

    Raises:
        Invalid: one of them is not known.
    """
    models = {**MODELS, **{each.name: (each.table,) for each in installed()}}
    listed = f"; there are {', '.join(models)}."
    found: list[str] = []
    for name in map(str.strip, names.split(",")):
        if name not in models:
            raise Invalid(f"There is no read model {name!r}{proposal(name, models, listed)}")
        found += models[name]
    return found


def check_name(name: str) -> None:
    """Check the name of a generation; raises Invalid."""
    if name in RESERVED or not NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} can't be the name of read models: up to 20 small letters, digits and underscores, and not one "
            f"of {', '.join(RESERVED)}."
        )


def known(connection: Connection) -> list[Known]:
    """All generations that are recorded, by name."""
    query = select(GENERATIONS, TRACKING.c.position.label("shown"), TRACKING.c.fold).join(
        TRACKING, TRACKING.c.name == f"{TRACKING_NAME}__" + GENERATIONS.c.name
    )
    return [
        Known(
            row.name,
            row.tables.split(","),
            row.created_at,
            row.shown,
            row.fold,
            LogHead(row.position, bytes(row.hash)),
        )
        for row in connection.execute(query.order_by(GENERATIONS.c.name))
    ]


def find(connection: Connection, name: str) -> Known:
    """The record of a generation; raises NotFound if no generation has this name."""
    found = {each.name: each for each in known(connection)}
    if name not in found:
        listed = "; `rioni projections list` shows those that there are."
        raise NotFound(f"There are no read models named {name}{proposal(name, found, listed)}")
    return found[name]


def create(engine: Engine, generation: Generation) -> None:
    """Make the tables anew, without indexes; an earlier generation of this name is removed."""
    with writing(engine) as connection:
        remove(connection, generation.name)
        for table in generation.tables.values():
            connection.execute(CreateTable(table))


def remove(connection: Connection, name: str) -> list[str]:
    """Remove the tables and the record of a generation, if they exist, in the caller's transaction.

    Only for the holder of the rebuild lock.

    Returns:
        The names of the tables that were removed.
    """
    present = {each for each in inspect(connection).get_table_names() if each.endswith(f"__{name}")}
    # PERF: each start of a broker removes tables that usually do not exist; the definitions of all tables take 10 ms.
    tables = [each for each in Generation(name).tables.values() if each.name in present] if present else []
    for each in tables:
        connection.execute(DropTable(each))
    connection.execute(delete(TRACKING).where(TRACKING.c.name == f"{TRACKING_NAME}__{name}"))
    connection.execute(delete(GENERATIONS).where(GENERATIONS.c.name == name))
    return [each.name for each in tables]


def record(connection: Connection, generation: Generation, created_at: str, checked: LogHead) -> None:
    """Record a generation, in the caller's transaction."""
    connection.execute(delete(GENERATIONS).where(GENERATIONS.c.name == generation.name))
    row = {"name": generation.name, "tables": ",".join(generation.tables), "created_at": created_at}
    connection.execute(insert(GENERATIONS).values(row | checked._asdict()))


def finish_load(engine: Engine, generation: Generation, position: int) -> None:
    """Note the position that the rows loaded in bulk show, and make indexes if the database can rename them. Blocks."""
    with writing(engine) as connection:
        if engine.dialect.name != "sqlite":
            for table in generation.tables.values():
                for index in sorted(table.indexes, key=lambda each: str(each.name)):
                    connection.execute(CreateIndex(index))
            # The planner has no statistics of new tables.
            connection.exec_driver_sql("ANALYZE " + ", ".join(table.name for table in generation.tables.values()))
        SqlTrackingRecorder.within(connection, fold=FOLD_VERSION).reset(generation.tracking_name, position)


def catch_up(engine: Engine, generation: Generation) -> None:
    """Bring the tables up to date in short transactions, until little is left. Blocks.

    Raises:
        CorruptLog: the entries that are left are not those that were written.
    """
    behind = ENTRIES_PER_CATCH_UP
    while behind == ENTRIES_PER_CATCH_UP:
        with writing(engine) as connection:
            behind = catch_up_within(connection, generation, ENTRIES_PER_CATCH_UP)


def catch_up_within(connection: Connection, generation: Generation, limit: int | None = None) -> int:
    """Apply the entries after the position in the caller's transaction; return how many there were."""
    after = generation.projector.position(connection)
    query = select(LOG).where(LOG.c.position > after).order_by(LOG.c.position).limit(limit)
    rows = [_log_row(row) for row in connection.execute(query)]
    previous = connection.scalar(select(LOG.c.hash).where(LOG.c.position == after))
    last = check_chain(rows, after, after + len(rows), GENESIS if previous is None else bytes(previous))
    generation.projector.apply(connection, (log_entry(row[:-1]) for row in rows))
    checked = LogHead(after + len(rows), last)._asdict()
    connection.execute(update(GENERATIONS).where(GENERATIONS.c.name == generation.name).values(checked))
    return len(rows)


@contextmanager
def caught_up_snapshot(engine: Engine, generation: Generation) -> Iterator[Connection]:
    """A snapshot in which the tables show the end of the log; writers wait while it is taken, and go on afterwards."""
    with ExitStack() as still:
        still.enter_context(turn(engine))
        if engine.dialect.name != "sqlite":
            still.enter_context(engine.begin()).execute(select(HEAD).with_for_update()).all()
        with engine.begin() as writer:
            catch_up_within(writer, generation)
        with snapshot(engine) as taken:
            # The first query takes the snapshot.
            head_position(taken)
            still.close()
            yield taken


def head_position(connection: Connection) -> int:
    """The last position of the log."""
    return connection.scalar(select(HEAD.c.position)) or 0


def _beside(live: Table, name: str, metadata: MetaData) -> Table:
    table = live.to_metadata(metadata, name=f"{live.name}__{name}")
    for index in table.indexes:
        index.name = quoted_name(f"{index.name}__{name}", quote=None)
    return table


def _log_row(row: Sequence[Any]) -> Sequence[Any]:
    """A row of the log as the executors read it."""
    position, stream, *rest, data, stored = row
    return (position, str(stream), *rest, bytes(data), bytes(stored))
