"""Read models at the start: from this release, folded again or rejected, and without remains of a dead rebuild."""

import threading

import pytest
from sqlalchemy import insert, inspect, select, text, update

from rioni.commands.event_types import CreateEventType
from rioni.config.settings import Config
from rioni.installation.database import reading_models
from rioni.installation.infrastructure import catch_up
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.projector import OtherFold
from rioni.projections.tables import EVENT_TYPES, READ_MODELS
from rioni.server.startup import prepare_startup
from rioni.sql.log_tables import TRACKING
from rioni.storage.sql.database_locks import rebuild_lock
from rioni.storage.sql.engines import create_engine, writing
from rioni.storage.sql.migration import upgrade
from tests.support.broker import running_broker
from tests.support.builders import event_type_spec
from tests.support.waiting import WAIT_S, wait_until


SUFFIX = "__new"


@pytest.fixture
def broker(tmp_path):
    """A broker with an event type, whose read models were written by another version of the fold."""
    with running_broker(tmp_path / "data") as broker:
        broker.do(CreateEventType(spec=event_type_spec()))
        yield broker


def write(broker, statement):
    with writing(broker.engine) as connection:
        connection.execute(statement)


def noted(broker):
    with broker.engine.connect() as connection:
        return connection.execute(select(TRACKING.c.position, TRACKING.c.fold)).one()


@pytest.mark.parametrize("older", range(FOLD_VERSION))
def test_read_models_of_an_older_fold_are_folded_again(broker, older):
    end = noted(broker).position
    write(broker, update(EVENT_TYPES).values(body='{"name":"order.created"}'))
    write(broker, update(TRACKING).values(fold=older))
    catch_up(broker.engine)
    assert noted(broker) == (end, FOLD_VERSION)
    with broker.engine.connect() as connection:
        assert "owning_application" in connection.scalar(select(EVENT_TYPES.c.body))


def test_read_models_of_a_newer_fold_are_rejected_and_left_unchanged(broker):
    write(broker, update(TRACKING).values(fold=FOLD_VERSION + 1))
    with pytest.raises(OtherFold, match="upgrade this one; else stop the broker, run `rioni rebuild`"):
        catch_up(broker.engine)
    before = noted(broker)
    with pytest.raises(OtherFold):
        broker.do(CreateEventType(spec=event_type_spec(name="other")))
    assert noted(broker) == before
    with broker.engine.connect() as connection:
        assert connection.scalars(select(EVENT_TYPES.c.name)).all() == ["order.created"]


def test_a_long_log_is_left_to_a_rebuild(broker, monkeypatch):
    monkeypatch.setattr("rioni.installation.infrastructure.REFOLDED_ENTRIES_MAX", noted(broker).position - 1)
    write(broker, update(TRACKING).values(fold=0))
    with pytest.raises(OtherFold, match="run `rioni rebuild`"):
        catch_up(broker.engine)
    monkeypatch.setattr("rioni.installation.infrastructure.REFOLDED_ENTRIES_MAX", noted(broker).position)
    catch_up(broker.engine)


def test_the_tables_of_a_dead_rebuild_are_removed_and_those_of_a_running_one_are_not(tmp_path):
    config = Config(data=tmp_path / "data")
    with prepare_startup(config):
        pass
    engine = create_engine(f"sqlite:///{tmp_path}/data/registry.db")
    left = {f"{name}{SUFFIX}" for name in ("states", "event_types")}
    with writing(engine) as connection:
        for name in left:
            connection.execute(text(f"CREATE TABLE {name} (a)"))
        connection.execute(insert(TRACKING).values(name=f"read-models{SUFFIX}", position=7))
    with rebuild_lock(engine), prepare_startup(config):
        assert left <= set(inspect(engine).get_table_names())
    with prepare_startup(config):
        assert not left & set(inspect(engine).get_table_names())
    with engine.connect() as connection:
        assert connection.scalars(select(TRACKING.c.name)).all() == []
    engine.dispose()


@pytest.mark.postgres
def test_a_query_that_waits_for_the_swap_of_a_rebuild_sees_all_rows(postgres_url):
    engine = create_engine(postgres_url())
    upgrade(engine)
    found = []

    def read():
        with reading_models(engine) as connection:
            found.extend(connection.scalars(select(EVENT_TYPES.c.name)))

    reader = threading.Thread(target=read)
    with writing(engine) as swap:
        # The swap does this: the last entries are folded into the new table in the same transaction.
        names = ", ".join(table.name for table in READ_MODELS.sorted_tables)
        swap.execute(text(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"))
        swap.execute(text("CREATE TABLE event_types__new (LIKE event_types INCLUDING ALL)"))
        swap.execute(text("INSERT INTO event_types__new VALUES ('last', 'app', '{}')"))
        reader.start()
        waiting = text(
            "SELECT count(*) FROM pg_locks WHERE NOT granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        wait_until(lambda: swap.scalar(waiting) > 0)
        swap.execute(text("DROP TABLE event_types"))
        swap.execute(text("ALTER TABLE event_types__new RENAME TO event_types"))
    reader.join(WAIT_S)
    assert found == ["last"]
    engine.dispose()
