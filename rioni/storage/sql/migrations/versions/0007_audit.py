"""Adds an index for each filter of the audit trail, in log order, and the table of refused requests."""

import sqlalchemy as sa
from alembic import op


revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.drop_index("ix_audit_log_resource", "audit_log")
    op.create_index("ix_audit_log_actor", "audit_log", ["actor", "position"])
    op.create_index("ix_audit_log_flow_id", "audit_log", ["flow_id", "position"])
    op.create_index("ix_audit_log_kind", "audit_log", ["resource_type", "position"])
    op.create_index("ix_audit_log_resource", "audit_log", ["resource_type", "resource", "position", "topic"])
    op.create_index("ix_audit_log_topic", "audit_log", ["topic", "position"])
    op.create_table(
        "denials",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("first_at", sa.Text, nullable=False),
        sa.Column("last_at", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("user_agent", sa.Text, nullable=False),
        sa.Column("flow_id", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
