"""Adds the table of jobs, archives with their progress. With SQLite it is in a separate file."""

import sqlalchemy as sa
from alembic import op


revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("job", sa.LargeBinary, nullable=False),
    )
