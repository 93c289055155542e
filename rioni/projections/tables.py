"""The tables of the read models: written by the projection alone, and rebuilt from the log at any time."""

from sqlalchemy import BigInteger, Boolean, Column, Connection, Index, Integer, MetaData, Table, Text


READ_MODELS = MetaData()
TRACKING_NAME = "read-models"
"""Name of the projection's position in the table `tracking`."""

STATES = Table(
    "states",
    READ_MODELS,
    Column("stream", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("state", Text),
    Index("ix_states_kind", "kind", "key"),
)
"""The state of every stream, on which commands decide. `state` is null after a deletion."""

EVENT_TYPES = Table(
    "event_types",
    READ_MODELS,
    Column("name", Text, primary_key=True),
    Column("owning_application", Text, nullable=False),
    Column("body", Text, nullable=False),
)

SCHEMAS = Table(
    "schemas",
    READ_MODELS,
    Column("event_type", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
"""Every version of every schema; `position` in the log gives their order."""

TIMELINES = Table(
    "timelines",
    READ_MODELS,
    Column("event_type", Text, primary_key=True),
    Column("order", Integer, primary_key=True),
    Column("storage_id", Text, nullable=False),
    Column("body", Text, nullable=False),
)

SUBSCRIPTIONS = Table(
    "subscriptions",
    READ_MODELS,
    Column("id", Text, primary_key=True),
    Column("natural_key", Text, nullable=False),
    Column("owning_application", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("ix_subscriptions_created_at", "created_at", "id"),
)

SUBSCRIPTION_EVENT_TYPES = Table(
    "subscription_event_types",
    READ_MODELS,
    Column("subscription_id", Text, primary_key=True),
    Column("event_type", Text, primary_key=True),
    Index("ix_subscription_event_types_event_type", "event_type"),
)

STORAGES = Table(
    "storages",
    READ_MODELS,
    Column("id", Text, primary_key=True),
    Column("is_default", Boolean, nullable=False),
    Column("body", Text, nullable=False),
)

AUDIT_LOG = Table(
    "audit_log",
    READ_MODELS,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("recorded_at", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("flow_id", Text, nullable=False),
    Column("command_id", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("resource_type", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Index("ix_audit_log_actor", "actor", "position"),
    Index("ix_audit_log_flow_id", "flow_id", "position"),
    Index("ix_audit_log_kind", "resource_type", "position"),
    # The topic lets versions of schemas be found without reading the states.
    Index("ix_audit_log_resource", "resource_type", "resource", "position", "topic"),
    Index("ix_audit_log_topic", "topic", "position"),
)
"""The audit trail: actor, change, time and client, with both states. Each filter has an index in log order."""


def lock_against_swap(connection: Connection) -> None:
    """Let no rebuild replace the read models before this transaction ends; waits for one that is doing so.

    Must be the first statement of the transaction. On PostgreSQL a query takes its snapshot first and then waits for
    the tables, so that it would see the new tables without the rows that came with the swap itself. This statement
    waits without taking a snapshot. All locks are taken in one order, that of the swap.
    """
    if connection.dialect.name == "postgresql":
        names = ", ".join(each.name for each in READ_MODELS.sorted_tables)
        connection.exec_driver_sql(f"LOCK TABLE {names} IN ACCESS SHARE MODE")
