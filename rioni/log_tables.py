"""Defines the tables of the internal log: entries, head, Merkle tree, checkpoints of consumers, marks of the stores."""

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

MARKS = Table(
    "marks",
    LOG_TABLES,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""The id of the installation, and the last recorded position of each store."""
