"""Creates the idempotency index of Kafka appends. With SQLite it is in a separate file."""

import sqlalchemy as sa
from alembic import op


revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.create_table(
        "stored_names",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("digest", sa.Text),
        sa.Column("recorded_at_ms", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.LargeBinary),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
    )
    op.create_index("ix_stored_names_attempt", "stored_names", ["attempt"])
    op.create_index("ix_stored_names_store_time", "stored_names", ["store", "recorded_at_ms"])
    op.create_table(
        "attempts",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("begun_ms", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
