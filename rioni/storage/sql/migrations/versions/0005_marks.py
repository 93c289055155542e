"""Creates the marks: the installation id, and the stores' positions, which reveal a replaced store."""

import sqlalchemy as sa
from alembic import op


revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table("marks", sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False))
