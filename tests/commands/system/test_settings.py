import pytest

from rioni.commands.system.settings import AddBlacklistEntry, RemoveBlacklistEntry, SetAdmins, SwitchFeature
from rioni.domain.authorization import Attribute, Subject
from rioni.domain.errors import AdminOnly, InvalidFields, Malformed
from rioni.domain.system.settings import Admins, Settings
from tests.support.broker import DEFAULT_ADMIN


ALICE = Attribute("user", "alice")
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


def test_features_are_known_in_all_spellings(broker):
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


def test_settings_can_be_changed_while_the_database_is_read_only(broker):
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=False))
    assert settings(broker).features == Settings().features


def test_an_unknown_type_of_blacklist_entry_is_refused(broker):
    with pytest.raises(Malformed, match="Possible values"):
        broker.do(AddBlacklistEntry(type="nope", name="x"))
