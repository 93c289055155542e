"""Adds the table of sessions of the console that have ended before their time."""

import sqlalchemy as sa
from alembic import op


revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("until_s", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_ended_sessions_until_s", "ended_sessions", ["until_s"])
