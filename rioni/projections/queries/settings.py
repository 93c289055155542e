"""Queries over the broker's settings of the past; those of now are in the registry."""

import msgspec
from sqlalchemy import Connection

from rioni.domain.system.settings import SETTINGS, Settings
from rioni.projections.queries import past
from rioni.projections.queries.past import Moment


def settings_at(connection: Connection, at: Moment) -> Settings:
    """The settings at a moment; those of a new broker until one was changed."""
    body = past.state(connection, "settings", SETTINGS, at)
    return Settings() if body is None else msgspec.json.decode(body, type=Settings)
