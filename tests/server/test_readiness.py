import contextlib
import shutil
from typing import NamedTuple

import msgspec
import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.system.storages import CreateStorage, SetDefaultStorage
from rioni.config.settings import Config
from rioni.domain.access.authorization import EVERYBODY, Attribute
from rioni.domain.errors import Unavailable
from rioni.domain.system.storages import StorageEntry
from rioni.domain.system.system_events import Ownership, audit_log
from rioni.domain.timestamps import milliseconds
from rioni.installation.database import cluster_identity, command_identity, database_lease
from rioni.installation.from_config import limits_of
from rioni.installation.infrastructure import build_infrastructure
from rioni.projections.queries.audit_log import last_recorded_at
from rioni.server.readiness import readiness
from rioni.server.startup import prepare_startup
from tests.support.clock import ManualClock


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def base(tmp_path):
    """The infrastructure of a single node that knows an unreachable Kafka."""
    config = Config(data=tmp_path / "data", kafka="127.0.0.1:1")
    with prepare_startup(config) as directory:
        foundation = build_infrastructure(config, directory)
        yield foundation
        foundation.close()


@pytest.fixture
def held(base):
    """The database lease of the node."""
    return database_lease(base.config, cluster_identity(base.config, base.directory.broker)).acquire(0)


def test_a_single_node_needs_its_database_and_its_disk(base, held):
    """Reference operations#readiness."""
    looks = readiness(base, held)
    own = {"database", "log", "access", "disk", "clock", "signing_key", "events", "coordination"}
    assert looks.keys() == own | {"kafka"}
    assert looks["database"]().detail == "SQLite"
    assert looks["log"]().detail == "1 entries applied, 0 left"
    assert {look().status for look in looks.values()} == {"ok"}


def test_kafka_is_checked_if_a_storage_names_it_though_no_setting_does(tmp_path):
    config = Config(data=tmp_path / "data")
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        look = readiness(base, database_lease(config, cluster_identity(config, directory.broker)).acquire(0))["kafka"]
        assert look() is None
        configuration = {"bootstrap_servers": "127.0.0.1:1"}
        storage = StorageEntry(id="far", storage_type="kafka", configuration=configuration, default=True)
        base.bus.dispatch(CreateStorage(storage=storage), base.system_context())
        base.registry.refresh()
        with pytest.raises(Unavailable, match="No Kafka broker responds"):
            look()


@pytest.mark.postgres
def test_a_database_leased_by_others_fails_and_names_them(base, postgres_url):
    config = Config(data=base.config.data, database=postgres_url())
    with contextlib.closing(database_lease(config, command_identity("migrate", "others")).acquire(0)):
        overtaken = database_lease(config, cluster_identity(config, base.directory.broker))
        with pytest.raises(Unavailable):
            overtaken.acquire(0)
        health = readiness(base, overtaken)["database"]()
        assert health.status == "failed"
        assert "in use by rioni migrate on " in health.reason


@pytest.mark.parametrize(("free", "status"), [(2**40, "ok"), (2**28, "warning"), (2**20, "failed")])
def test_the_status_of_a_disk_depends_on_its_free_space(base, held, monkeypatch, free, status):
    """Reference operations#readiness."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(2**40, 2**40 - free, free))
    assert readiness(base, held)["disk"]().status == status


def test_an_unavailable_kafka_fails_if_it_is_the_default_storage_and_else_warns(base, held):
    """Reference operations#readiness."""
    storage = StorageEntry(id="far", storage_type="kafka", default=False)
    base.bus.dispatch(CreateStorage(storage=storage), base.system_context())
    base.registry.refresh()
    look = readiness(base, held)["kafka"]
    assert look().status == "warning"
    assert "storage far: " in look().warnings[0]
    base.bus.dispatch(SetDefaultStorage(storage_id="far"), base.system_context())
    base.registry.refresh()
    with pytest.raises(Unavailable):
        look()


@pytest.mark.parametrize(
    ("behind_ms", "warned"), [(-1_000, False), (10_000, False), (10_001, True), (86_400_000, True)]
)
def test_a_clock_behind_the_log_is_a_warning(base, held, behind_ms, warned):
    """Reference operations#readiness."""
    last_ms = milliseconds(base.read(last_recorded_at))
    health = readiness(base._replace(clock=ManualClock(last_ms - behind_ms)), held)["clock"]()
    assert health.status == ("warning" if warned else "ok")
    assert not warned or f"{behind_ms // 1_000} s behind the last entry of the log" in health.warnings[0]


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "broker.example.org"}, True),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0", "auth_mode": "basic"}, False),
    ],
)
def test_a_broker_without_access_control_is_a_warning(base, held, settings, warned):
    """Reference operations#readiness."""
    open_base = base._replace(config=msgspec.structs.replace(base.config, **settings))
    health = readiness(open_base, held)["access"]()
    assert health.status == ("warning" if warned else "ok")


@pytest.mark.parametrize(
    ("mode", "wanted", "readers", "warned"),
    [
        ("basic", "default_admin", EVERYBODY, True),
        ("basic", "*:*", EVERYBODY, False),
        ("off", "default_admin", EVERYBODY, False),
        ("basic", "default_admin", Attribute("user", "auditor"), False),
    ],
)
def test_an_audit_log_readable_by_all_is_a_warning_unless_configured(base, held, mode, wanted, readers, warned):
    ownership = Ownership(readers=readers, admins=Attribute("service", "admin"))
    spec = audit_log(ownership, limits_of(base.config)).spec
    base.bus.dispatch(CreateEventType(spec=spec), base.system_context())
    base.registry.refresh()
    config = msgspec.structs.replace(base.config, auth_mode=mode, system_events_authorization=wanted)
    health = readiness(base._replace(config=config), held)["access"]()
    assert health.status == ("warning" if warned else "ok")
