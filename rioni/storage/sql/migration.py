"""Upgrades a database to the schema of this version of the broker."""

import re
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, func, inspect, select, text

from rioni.domain.errors import Unavailable
from rioni.storage.sql.engines import reading, writing


LATEST = "0011"
"""The schema revision of this version of the broker; a test compares it with the scripts."""

WAIT_S = 600
"""How long a node waits for the migrating one, and the migrating one for the others' table locks."""

_LOCK = 0x52696F6E69
SCRIPTS = Path(__file__).parent / "migrations"
NEW_SQLITE = SCRIPTS / "new_sqlite.sql"
"""The statements by which all scripts together build an empty SQLite database, with an empty line after each.
`python -m dev` writes it."""

_REVISION = re.compile(r"[0-9]{4}")


def upgrade(engine: Engine, revision: str = LATEST) -> None:
    """Run the missing migrations in one transaction; other nodes may do so concurrently.

    Raises:
        Unavailable: the database is newer than this version of the broker, or can't be reached.
    """
    found = current(engine)
    _refuse_newer(found)
    if found == revision:
        return
    if found is None and revision == LATEST and engine.dialect.name == "sqlite":
        _create(engine)
        return
    # PERF: importing alembic takes as long as the rest of the start, and most starts have nothing to migrate.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            # SQLite's transaction excludes others by itself. The lock number is an arbitrary constant.
            connection.execute(text(f"SET LOCAL lock_timeout = '{WAIT_S}s'"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            driver: Any = connection.connection.driver_connection
            driver.deadline_s = None
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        # Another node may have migrated, even to a newer version.
        _refuse_newer(_revision(connection))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def _create(engine: Engine) -> None:
    """Make the tables of an empty SQLite database. PERF: 3 ms; running all migrations takes 70."""
    with writing(engine) as connection:
        found = _revision(connection)
        if found is None:
            for statement in NEW_SQLITE.read_text(encoding="utf-8").split("\n\n"):
                connection.exec_driver_sql(statement)
        # Another process may have been faster, even one of a newer version.
        _refuse_newer(found)


def check_current(engine: Engine) -> None:
    """Check that a database has the schema of this version of the broker, without changing it.

    Raises:
        Unavailable: it has another schema, or can't be read.
    """
    found = current(engine)
    _refuse_newer(found)
    if found is None:
        raise Unavailable("The database is empty, or belongs to another program: it holds nothing of Rioni.")
    if found != LATEST:
        raise Unavailable(
            f"The database was written by an older version of Rioni (schema {found}, needed here: {LATEST}). Use that "
            "version, or let `rioni serve` of this one bring it up to date."
        )


def current(engine: Engine) -> str | None:
    """Return the revision of a database, None for an empty one."""
    with reading(engine) as connection:
        return _revision(connection)


def _revision(connection: Connection) -> str | None:
    if "alembic_version" not in inspect(connection).get_table_names():
        return None
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if not (isinstance(found, str) and _REVISION.fullmatch(found)):
        raise Unavailable(
            f"The database is damaged, or belongs to another program: its table alembic_version has {found!r:.50} in "
            "place of a version of its schema."
        )
    return found


def _refuse_newer(found: str | None) -> None:
    if found is not None and found > LATEST:
        raise Unavailable(
            f"The database was written by a newer version of Rioni (schema {found}, known here: {LATEST}). Use that "
            "version."
        )
