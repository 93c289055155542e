"""Shadow tables of a rebuild: created beside the live tables, loaded, caught up and swapped in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    NullPool,
    Table,
    create_engine,
    delete,
    event,
    insert,
    make_url,
    quoted_name,
    select,
)
from sqlalchemy.schema import CreateIndex, CreateTable, DropTable

from rioni.domain.hash_chain import GENESIS
from rioni.log_tables import HEAD, LOG, TRACKING
from rioni.projections.bulk.executors import Target, log_entry
from rioni.projections.bulk.source import Database, check_chain
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.projector import Projector
from rioni.projections.tables import READ_MODELS, SHADOW_SUFFIX, TRACKING_NAME, drop_shadow_tables
from rioni.sql_engines import WRITES, begin_explicitly, with_driver


Turn = Callable[[], AbstractContextManager[None]]

LOCK_WAIT_S = 60
ENTRIES_PER_CATCH_UP = 500
"""How many entries may be caught up while the log is locked: a fraction of a second."""


def _shadow(table: Table, metadata: MetaData) -> Table:
    shadow = table.to_metadata(metadata, name=table.name + SHADOW_SUFFIX)
    for index in shadow.indexes:
        index.name = quoted_name(f"{index.name}{SHADOW_SUFFIX}", quote=None)
    return shadow


SHADOWS: Mapping[str, Table] = {
    table.name: _shadow(table, metadata) for metadata in [MetaData()] for table in READ_MODELS.sorted_tables
}
"""For each read model its shadow."""

PROJECTOR = Projector(SHADOWS, tracking_name=TRACKING_NAME + SHADOW_SUFFIX)
"""The live projection, writing into the shadows; it keeps their position under a name of its own."""


def open_engine(url: str, turn: Turn = nullcontext) -> Engine:
    """An engine of our own for a rebuild; its transactions are real ones on both databases, DDL included.

    Args:
        url: the database, as SQLAlchemy writes it.
        turn: what every other writer to the database holds while it writes.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        parsed = with_driver(parsed)
    engine = create_engine(parsed, poolclass=NullPool, execution_options={"turn": turn, WRITES: True})
    if engine.dialect.name == "sqlite":
        begin_explicitly(engine)
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # Loading needs no fsync of its own: a commit of the live projection, and the swap, write all that came before.
    # PERF: without secure_delete, dropping a table of a million rows takes one second instead of sixteen.
    # PERF: a batch of rows fits into 64 MB of cache and does not spill; checkpoints are fewer and larger.
    for setting in (
        f"busy_timeout={LOCK_WAIT_S * 1000}",
        "synchronous=NORMAL",
        "secure_delete=OFF",
        "cache_size=-64000",
        "wal_autocheckpoint=16000",
    ):
        connection.execute(f"PRAGMA {setting}")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes, while no other process does."""
    with engine.get_execution_options()["turn"](), engine.begin() as connection:
        yield connection


def database(engine: Engine) -> Database:
    """Where the log is, for the executors."""
    if engine.dialect.name == "sqlite":
        return Database("sqlite", str(Path(engine.url.database or "").resolve()))
    return Database("postgresql", engine.url.set(drivername="postgresql").render_as_string(hide_password=False))


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the database and locks nothing."""
    options = {WRITES: False} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def caught_up_snapshot(engine: Engine) -> Iterator[Connection]:
    """A snapshot in which the shadows show the end of the log; writers wait while it is taken, and go on afterwards."""
    with ExitStack() as still:
        still.enter_context(engine.get_execution_options()["turn"]())
        if engine.dialect.name != "sqlite":
            still.enter_context(engine.begin()).execute(select(HEAD).with_for_update()).all()
        with engine.begin() as writer:
            _catch_up(writer)
        with snapshot(engine) as taken:
            # The first query takes it.
            head_position(taken)
            still.close()
            yield taken


def targets(engine: Engine) -> Sequence[Target]:
    """The shadows, as the executors need to know them."""
    return [
        Target(name, _arrow_schema(shadow), tuple(shadow.primary_key.columns.keys()), _copy(engine, shadow))
        for name, shadow in SHADOWS.items()
    ]


def _arrow_schema(table: Table) -> pa.Schema:
    return pa.schema([pa.field(column.name, _arrow_type(column)) for column in table.columns])


def _arrow_type(column: Column[Any]) -> pa.DataType:
    if isinstance(column.type, Integer):
        return pa.int64()
    return pa.bool_() if isinstance(column.type, Boolean) else pa.string()


def _copy(engine: Engine, table: Table) -> str:
    quote = engine.dialect.identifier_preparer.quote
    return f"COPY {quote(table.name)} ({', '.join(quote(column.name) for column in table.columns)}) FROM STDIN"


def create(engine: Engine) -> None:
    """Make the shadows anew, without indexes; what an interrupted rebuild left behind is removed."""
    drop(engine)
    with writing(engine) as connection:
        for shadow in SHADOWS.values():
            connection.execute(CreateTable(shadow))


def drop(engine: Engine) -> None:
    """Remove the shadows, where there are any; the live tables are not touched."""
    with writing(engine) as connection:
        drop_shadow_tables(connection)


def load_file(engine: Engine, path: Path) -> None:
    """Copy what a task has written into the shadows, one short transaction per batch; commands are not blocked."""
    with engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("ATTACH ? AS part", (str(path),))
        for table, *bounds in cursor.execute("SELECT name, first, last FROM part.batches").fetchall():
            rows = f"SELECT * FROM part.{table} WHERE rowid BETWEEN ? AND ?"  # noqa: S608 - all names are ours
            with engine.get_execution_options()["turn"]():
                cursor.execute(f"INSERT INTO {SHADOWS[table].name} {rows}", bounds)


def finish_load(engine: Engine, position: int) -> None:
    """Note which position the loaded rows show, and give the shadows their indexes where these can be renamed."""
    with writing(engine) as connection:
        if engine.dialect.name != "sqlite":
            for shadow in SHADOWS.values():
                for index in sorted(shadow.indexes, key=_name):
                    connection.execute(CreateIndex(index))
            # The planner has no statistics of new tables.
            connection.exec_driver_sql("ANALYZE " + ", ".join(shadow.name for shadow in SHADOWS.values()))
        row = {"name": TRACKING_NAME + SHADOW_SUFFIX, "position": position, "fold": FOLD_VERSION}
        connection.execute(insert(TRACKING).values(row))


def catch_up(engine: Engine) -> None:
    """Bring the shadows up to date in short transactions, until little is left for the swap."""
    behind = ENTRIES_PER_CATCH_UP
    while behind == ENTRIES_PER_CATCH_UP:
        with writing(engine) as connection:
            behind = _catch_up(connection, ENTRIES_PER_CATCH_UP)


def _catch_up(connection: Connection, limit: int | None = None) -> int:
    """Apply the entries behind the shadows' position; return how many there were."""
    after = PROJECTOR.position(connection)
    query = select(LOG).where(LOG.c.position > after).order_by(LOG.c.position).limit(limit)
    rows = [_log_row(row) for row in connection.execute(query)]
    previous = connection.scalar(select(LOG.c.hash).where(LOG.c.position == after))
    check_chain(rows, after, after + len(rows), GENESIS if previous is None else bytes(previous))
    PROJECTOR.apply(connection, (log_entry(row[:-1]) for row in rows))
    return len(rows)


def swap(engine: Engine) -> None:
    """Put the shadows in the place of the live tables, up to date, in one transaction that holds the log's lock."""
    with writing(engine) as connection:
        connection.execute(select(HEAD).with_for_update()).all()
        _catch_up(connection)
        position = PROJECTOR.position(connection)
        if engine.dialect.name != "sqlite":
            # All at once, before anything is dropped: a reader of two tables can't get between.
            names = ", ".join(table.name for table in READ_MODELS.sorted_tables)
            connection.exec_driver_sql(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        for table in READ_MODELS.sorted_tables:
            connection.execute(DropTable(table, if_exists=True))
            connection.exec_driver_sql(f"ALTER TABLE {table.name}{SHADOW_SUFFIX} RENAME TO {table.name}")
            _give_indexes(connection, table)
        connection.execute(delete(TRACKING).where(TRACKING.c.name == TRACKING_NAME + SHADOW_SUFFIX))
        # The position may go backwards here, and nowhere else.
        connection.execute(delete(TRACKING).where(TRACKING.c.name == TRACKING_NAME))
        row = {"name": TRACKING_NAME, "position": position, "fold": FOLD_VERSION}
        connection.execute(insert(TRACKING).values(row))


def _give_indexes(connection: Connection, table: Table) -> None:
    """Give a table that was a shadow the live table's index names."""
    if connection.dialect.name == "sqlite":
        # SQLite can't rename an index. PERF: two seconds for a million rows.
        for index in sorted(table.indexes, key=_name):
            connection.execute(CreateIndex(index))
        return
    names = [f"{table.name}_pkey", *sorted(_name(index) for index in table.indexes)]
    shadows = [f"{table.name}{SHADOW_SUFFIX}_pkey", *(name + SHADOW_SUFFIX for name in names[1:])]
    for old, new in zip(shadows, names, strict=True):
        connection.exec_driver_sql(f"ALTER INDEX {old} RENAME TO {new}")


def _name(index: Index) -> str:
    return str(index.name)


def _log_row(row: Sequence[Any]) -> Sequence[Any]:
    """A row of the log as the executors read it."""
    position, stream, *rest, data, stored = row
    return (position, str(stream), *rest, bytes(data), bytes(stored))


def head_position(connection: Connection) -> int:
    """The last position of the log."""
    return connection.scalar(select(HEAD.c.position)) or 0
