"""Creates the first read models. They are filled from the log: no data has to be migrated when they change."""

import sqlalchemy as sa
from alembic import op


revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "states",
        sa.Column("stream", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", sa.Text),
    )
    op.create_index("ix_states_kind", "states", ["kind", "key"])
    op.create_table(
        "event_types",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owning_application", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "schemas",
        sa.Column("event_type", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "timelines",
        sa.Column("event_type", sa.Text, primary_key=True),
        sa.Column("order", sa.Integer, primary_key=True),
        sa.Column("storage_id", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("natural_key", sa.Text, nullable=False),
        sa.Column("owning_application", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("ix_subscriptions_created_at", "subscriptions", ["created_at", "id"])
    op.create_table(
        "subscription_event_types",
        sa.Column("subscription_id", sa.Text, primary_key=True),
        sa.Column("event_type", sa.Text, primary_key=True),
    )
    op.create_index("ix_subscription_event_types_event_type", "subscription_event_types", ["event_type"])
    op.create_table(
        "storages",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "audit_log",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("recorded_at", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("flow_id", sa.Text, nullable=False),
        sa.Column("command_id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("resource_type", sa.Text, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
    )
    op.create_index("ix_audit_log_resource", "audit_log", ["resource_type", "resource"])
