"""Adds the tables of rebuilds: generations of the read models, progress, and the rows written by their tasks."""

import sqlalchemy as sa
from alembic import op


revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "generations",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("tables", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "rebuilds",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("started_at", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
    )
    op.create_table(
        "rebuild_tasks",
        sa.Column("rebuild", sa.Text, primary_key=True),
        sa.Column("task", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("batches", sa.Integer, nullable=False),
        sa.Column("rows", sa.Text, nullable=False),
    )
