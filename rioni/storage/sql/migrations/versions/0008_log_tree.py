"""Adds the tables of the Merkle tree over the log: complete tiles, and cosignatures of checkpoints."""

import sqlalchemy as sa
from alembic import op


revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "log_tiles",
        sa.Column("level", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("hashes", sa.LargeBinary, nullable=False),
        sa.Column("root", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "log_cosignatures",
        sa.Column("witness", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
    )
