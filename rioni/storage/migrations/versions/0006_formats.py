"""In which format the log is written, and which version of the fold wrote the read models."""

import sqlalchemy as sa
from alembic import op


revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("head", sa.Column("format", sa.Integer, nullable=False, server_default="1"))
    # 0 is no version: read models of before this are folded anew.
    op.add_column("tracking", sa.Column("fold", sa.Integer, nullable=False, server_default="0"))
