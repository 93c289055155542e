"""Adds the log format, and the version of the fold that wrote the read models."""

import sqlalchemy as sa
from alembic import op


revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("head", sa.Column("format", sa.Integer, nullable=False, server_default="1"))
    # 0 is not a version: read models from before this migration are rebuilt.
    op.add_column("tracking", sa.Column("fold", sa.Integer, nullable=False, server_default="0"))
