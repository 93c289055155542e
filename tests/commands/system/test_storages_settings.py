import contextlib

import pytest

from rioni.commands.authorization import AccessPolicy
from rioni.commands.event_types import CreateEventType
from rioni.commands.system.storages import AddBlacklistEntry, RemoveBlacklistEntry, SetAdmins, SwitchFeature
from rioni.domain.access.authorization import Attribute, EventTypeAuthorization, Subject
from rioni.domain.aggregates import TOPICS
from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.errors import AccessDenied, AdminOnly, InvalidFields, Malformed
from rioni.domain.ports.host import direct
from rioni.domain.system.settings import Admins, Settings
from rioni.projections.registry import MemoryRegistry
from rioni.storage.log.event_log import SqlEventLog
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import event_type_spec


ALICE, BOB, CAROL = (Attribute("user", name) for name in ("alice", "bob", "carol"))
ALICES = Admins(admins=(ALICE,), readers=(ALICE,), writers=(ALICE,))


def subject(attribute):
    return Subject(name=attribute.value, attributes=frozenset({attribute}))


def settings(broker):
    broker.registry.refresh()
    return broker.registry.settings


def test_repeating_a_setting_is_no_event(broker):
    """Reference settings-and-storages#unchanged-settings."""
    for command in (
        SwitchFeature(feature="kpi_collection", enabled=True),
        AddBlacklistEntry(type="CONSUMER_APP", name="x"),
        SetAdmins(admins=ALICES),
        RemoveBlacklistEntry(type="CONSUMER_APP", name="x"),
    ):
        head = broker.log.head().position
        broker.do(command)
        assert broker.log.head().position == head + 1
        broker.do(command)
        assert broker.log.head().position == head + 1


def test_features_are_accepted_in_all_spellings(broker):
    broker.do(SwitchFeature(feature="TOKEN_SUBSCRIPTION_ITERATION", enabled=True))
    assert settings(broker).features == ("repartitioning", "token_subscriptions_iteration")
    with pytest.raises(Malformed, match="Illegal enum value: 'nope'"):
        broker.do(SwitchFeature(feature="nope", enabled=True))


def test_the_default_administrator_is_never_stored(broker):
    """Reference authorization#default-administrator."""
    both = Admins(admins=(ALICE, DEFAULT_ADMIN), readers=(ALICE,), writers=(ALICE,))
    broker.do(SetAdmins(admins=both))
    assert settings(broker).admins == ALICES


def test_no_list_of_administrators_may_be_empty(broker):
    with pytest.raises(InvalidFields) as caught:
        broker.do(SetAdmins(admins=Admins(admins=(ALICE,))))
    assert [path for path, _ in caught.value.violations] == ["readers", "writers"]


def test_only_administrators_change_settings(broker):
    """Reference authorization#changed-administrators."""
    switch = SwitchFeature(feature="kpi_collection", enabled=True)
    for command in (switch, SetAdmins(admins=ALICES), AddBlacklistEntry(type="CONSUMER_APP", name="x")):
        with pytest.raises(AdminOnly):
            broker.do(command, subject(ALICE))
    broker.do(SetAdmins(admins=ALICES), subject(DEFAULT_ADMIN))
    broker.do(switch, subject(ALICE))


def test_changed_administrators_apply_in_every_worker(broker):
    """Reference authorization#changed-administrators."""
    closed = EventTypeAuthorization(admins=(CAROL,), readers=(CAROL,), writers=(CAROL,))
    broker.do(CreateEventType(spec=event_type_spec(authorization=closed)))
    with contextlib.closing(SqlEventLog(broker.engine, TOPICS)) as log:
        registry = MemoryRegistry(log, broker.limits, direct, direct, CompiledCache(10_000_000))
        bus, access = broker.bus_on(log), AccessPolicy(registry, DEFAULT_ADMIN)
        for enabled, now, before in ((True, ALICE, BOB), (False, BOB, ALICE)):
            broker.do(SetAdmins(admins=Admins(admins=(now,), readers=(now,), writers=(now,))))
            registry.refresh()  # as every request does
            assert access.event_type(subject(now), "order.created", "READ")
            with pytest.raises(AccessDenied):
                access.event_type(subject(before), "order.created", "READ")
            with pytest.raises(AdminOnly):
                bus.dispatch(SwitchFeature(feature="kpi_collection", enabled=enabled), broker.context(subject(before)))
            bus.dispatch(SwitchFeature(feature="kpi_collection", enabled=enabled), broker.context(subject(now)))
            assert ("kpi_collection" in settings(broker).features) is enabled


def test_settings_can_be_changed_while_the_database_is_read_only(broker):
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=False))
    assert settings(broker).features == Settings().features


def test_an_unknown_type_of_blacklist_entry_is_rejected(broker):
    with pytest.raises(Malformed, match="Possible values"):
        broker.do(AddBlacklistEntry(type="nope", name="x"))
