"""Defines the tables of the internal log: entries, head, Merkle tree, consumers, rebuilds, marks of the stores."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint


LOG_TABLES = MetaData()

LOG = Table(
    "log",
    LOG_TABLES,
    Column("position", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("stream", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("topic", Text, nullable=False),
    Column("recorded_at", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("flow_id", Text, nullable=False),
    Column("command_id", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    UniqueConstraint("stream", "version", name="uq_log_stream_version"),
    Index("ix_log_command_id", "command_id"),
)
"""All domain events ever recorded; rows are only ever added.

PERF: on SQLite an INTEGER key is the row id, and needs no index.
"""

HEAD = Table(
    "head",
    LOG_TABLES,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("format", Integer, nullable=False, server_default="1"),
)
"""One row: the head of the log. Appends hold its lock, so positions have no gaps and follow the commit order."""

TRACKING = Table(
    "tracking",
    LOG_TABLES,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("fold", Integer, nullable=False, server_default="0"),
)
"""The checkpoint of each log consumer; `fold` is the version of the fold that wrote the read models."""

LOG_TILES = Table(
    "log_tiles",
    LOG_TABLES,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("hashes", LargeBinary, nullable=False),
    Column("root", LargeBinary, nullable=False),
)
"""Complete tiles of the Merkle tree over the log: 256 hashes of 32 bytes, and the hash of the subtree over them."""

COSIGNATURES = Table(
    "log_cosignatures",
    LOG_TABLES,
    Column("witness", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("signature", Text, nullable=False),
)
"""The newest cosignature of each witness: the checkpoint that it signed, and the line with its signature."""

GENERATIONS = Table(
    "generations",
    LOG_TABLES,
    Column("name", Text, primary_key=True),
    Column("tables", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)
"""Generations of the read models: which tables, separated by commas, when they were built, and the last entry of the
log that was checked, with its hash. Their position is in `tracking`, like that of the live ones."""

REBUILDS = Table(
    "rebuilds",
    LOG_TABLES,
    Column("id", Text, primary_key=True),
    Column("started_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
    Column("plan", Text, nullable=False),
)
"""The progress of rebuilds, and their plans, as JSON."""

REBUILD_TASKS = Table(
    "rebuild_tasks",
    LOG_TABLES,
    Column("rebuild", Text, primary_key=True),
    Column("task", Integer, primary_key=True, autoincrement=False),
    Column("batches", Integer, nullable=False),
    Column("rows", Text, nullable=False),
)
"""The progress of the tasks of a rebuild: how many batches are loaded, and the rows of each table, as JSON."""

MARKS = Table(
    "marks",
    LOG_TABLES,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""The id of the installation, and the last recorded position of each store."""
