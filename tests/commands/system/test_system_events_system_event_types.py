"""System event types: only the broker publishes to them, creates, changes or deletes them."""

import pytest

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.domain.access.authorization import Attribute, Subject
from rioni.domain.errors import AccessDenied
from rioni.domain.system.system_events import AUDIT_LOG, NAMES
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import as_spec, event_type_spec


def subject(attribute):
    return Subject(name=attribute.value, attributes=frozenset({attribute}))


STRANGER, ADMIN = subject(Attribute("user", "mallory")), subject(DEFAULT_ADMIN)


@pytest.fixture
def event_type(broker):
    broker.system_event_types.ensure_one(AUDIT_LOG)
    return broker.registry.event_type(AUDIT_LOG)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_before_the_broker_only_administrators_may_create_them(broker, name):
    """Reference authorization#system-event-types."""
    command = CreateEventType(spec=event_type_spec(name=name))
    with pytest.raises(AccessDenied, match="the broker itself publishes to it"):
        broker.do(command, STRANGER)
    broker.do(command, ADMIN)


def test_only_readers_named_in_the_setting_read_the_audit_log(broker, event_type):
    """Reference system-event-types#access."""
    assert broker.access.event_type(ADMIN, AUDIT_LOG, "READ") == event_type
    with pytest.raises(AccessDenied, match=r"READ event-type:nakadi\.audit\.log"):
        broker.access.event_type(STRANGER, AUDIT_LOG, "READ")


def test_only_administrators_write_change_and_delete_the_audit_log(broker, event_type):
    """Reference system-event-types#access."""
    changed = ChangeEventType(name=AUDIT_LOG, spec=as_spec(event_type))
    with pytest.raises(AccessDenied):
        broker.access.event_type(STRANGER, AUDIT_LOG, "WRITE")
    with pytest.raises(AccessDenied):
        broker.do(changed, STRANGER)
    with pytest.raises(AccessDenied):
        broker.do(DeleteEventType(name=AUDIT_LOG), STRANGER)
    broker.access.event_type(ADMIN, AUDIT_LOG, "WRITE")
    broker.do(changed, ADMIN)
    broker.do(DeleteEventType(name=AUDIT_LOG), ADMIN)
