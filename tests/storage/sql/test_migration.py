import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from dev.new_sqlite import FIRST, dump
from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import Unavailable
from rioni.domain.hash_chain import GENESIS, LogHead
from rioni.projections.tables import READ_MODELS
from rioni.sql.log_tables import LOG_TABLES
from rioni.storage.kafka.idempotence.idempotency_index import NAME_TABLES
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.sql import migration
from rioni.storage.sql.access_tables import DENIAL_TABLES, ENDED_SESSION_TABLES
from rioni.storage.sql.engines import create_engine, writing
from rioni.storage.sql.expendable_tables import ACTIVITY_TABLES, JOB_TABLES
from rioni.storage.sql.migration import LATEST, NEW_SQLITE, SCRIPTS, check_current, current, upgrade
from tests.support.waiting import WAIT_S


@pytest.fixture
def fresh(empty_url: str) -> Iterator[Engine]:
    """An engine for an empty database."""
    engine = create_engine(empty_url)
    yield engine
    engine.dispose()


def test_the_migrated_schema_is_the_one_that_the_code_defines(engine: Engine):
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        shared = [ACTIVITY_TABLES, JOB_TABLES, NAME_TABLES] if engine.dialect.name == "postgresql" else []
        tables = (LOG_TABLES, READ_MODELS, DENIAL_TABLES, ENDED_SESSION_TABLES, *shared)
        assert compare_metadata(context, tables) == []


def test_the_latest_revision_is_the_last_script():
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [LATEST]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert sorted(revisions, reverse=True) == revisions, "revisions are compared as text"


def test_an_empty_database_has_no_revision_and_a_migrated_one_the_latest(fresh: Engine):
    assert current(fresh) is None
    upgrade(fresh)
    assert current(fresh) == LATEST


def test_the_log_of_a_new_database_is_empty(engine: Engine):
    assert SqlEventLog(engine, TOPICS).head() == LogHead(0, GENESIS)


def test_upgrading_again_changes_nothing(engine: Engine):
    with writing(engine) as connection:
        connection.execute(text("UPDATE head SET position = 7"))
    before = schema(engine)
    upgrade(engine)
    assert schema(engine) == before
    assert SqlEventLog(engine, TOPICS).head().position == 7


def test_an_older_database_is_upgraded_with_its_data(fresh: Engine):
    upgrade(fresh, "0001")
    with writing(fresh) as connection:
        connection.execute(text("UPDATE head SET position = 7"))
    upgrade(fresh)
    assert current(fresh) == LATEST
    assert SqlEventLog(fresh, TOPICS).head().position == 7


def test_a_new_sqlite_database_is_like_one_that_was_migrated_step_by_step(tmp_path: Path):
    path = tmp_path / "registry.db"
    engine = create_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    assert dump(path) == NEW_SQLITE.read_text()


def test_a_newer_database_is_rejected_and_left_unchanged(engine: Engine):
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Unavailable, match=rf"newer.*9999.*{LATEST}"):
        upgrade(engine)
    assert current(engine) == "9999"


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM alembic_version", "UPDATE alembic_version SET version_num = '1975ea83b712'"],
    ids=["no version", "a version of another program"],
)
def test_what_is_no_version_is_damage(engine: Engine, change: str):
    with writing(engine) as connection:
        connection.execute(text(change))
    for check in (upgrade, check_current):
        with pytest.raises(Unavailable, match="is damaged, or belongs to another program"):
            check(engine)


def test_a_failed_migration_changes_nothing(fresh: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scripts = tmp_path / "migrations"
    shutil.copytree(SCRIPTS, scripts)
    last = scripts / "versions" / "0002_read_models.py"
    last.write_text(last.read_text() + '\n    op.create_table("log", sa.Column("again", sa.Text))\n')
    monkeypatch.setattr(migration, "SCRIPTS", scripts)
    upgrade(fresh, FIRST)
    before = schema(fresh)
    with pytest.raises(Exception, match=r"log.* already exists"):
        upgrade(fresh)
    assert schema(fresh) == before


def test_nodes_that_start_at_once_migrate_once(empty_url: str):
    nodes = 4
    start = Barrier(nodes)

    def begin(_: int) -> str | None:
        engine = create_engine(empty_url)
        start.wait()
        upgrade(engine)
        revision = current(engine)
        engine.dispose()
        return revision

    with ThreadPoolExecutor(nodes) as executor:
        assert list(executor.map(begin, range(nodes))) == [LATEST] * nodes


@pytest.mark.postgres
def test_a_node_that_has_waited_for_the_migration_of_a_newer_one_is_rejected(postgres_url):
    newer = create_engine(postgres_url())
    upgrade(newer, "0001")
    older = create_engine(newer.url.render_as_string(hide_password=False))
    waits = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with ThreadPoolExecutor(1) as executor, newer.begin() as connection:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({migration._LOCK})"))
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        waiting = executor.submit(upgrade, older)
        while not connection.scalar(waits):
            assert not waiting.done()
        connection.commit()
        with pytest.raises(Unavailable, match=r"newer.*9999"):
            waiting.result(WAIT_S)
    for engine in (newer, older):
        engine.dispose()


def test_any_folder_name_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scripts = tmp_path / "50% of (my) files, %(here)s" / "migrations"
    shutil.copytree(SCRIPTS, scripts)
    monkeypatch.setattr(migration, "SCRIPTS", scripts)
    engine = create_engine(f"sqlite:///{scripts.parent}/registry.db")
    upgrade(engine, FIRST)
    upgrade(engine)
    assert current(engine) == LATEST
    engine.dispose()


def schema(engine: Engine) -> dict[str, list[str]]:
    inspector = inspect(engine)
    return {name: [str(column) for column in inspector.get_columns(name)] for name in inspector.get_table_names()}
