"""Runs the migrations on the connection that `rioni.storage.sql.migration` provides."""

from alembic import context


context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
