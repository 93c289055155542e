"""The database of the log and the read models, as the settings name it."""

from sqlalchemy import Engine

from rioni.config import Config
from rioni.storage.sql import create_engine


def database_url(config: Config) -> str:
    """Where the log and the read models are."""
    return config.database or f"sqlite:///{config.data.absolute() / 'registry.db'}"


def database_engine(config: Config) -> Engine:
    """An engine of this process; raises as `rioni.storage.sql.create_engine`."""
    return create_engine(
        database_url(config),
        lock_wait_s=config.database_wait_s,
        connections_max=config.database_connections_max,
    )
