"""Creates the table of client activity. With SQLite it is in a separate file."""

import sqlalchemy as sa
from alembic import op


revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.create_table(
        "sightings",
        sa.Column("deed", sa.Text, primary_key=True),
        sa.Column("resource", sa.LargeBinary, primary_key=True),
        sa.Column("client", sa.LargeBinary, primary_key=True),
        sa.Column("first_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_sightings_last_ms", "sightings", ["last_ms"])
