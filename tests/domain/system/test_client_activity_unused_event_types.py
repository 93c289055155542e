"""Event types that no client uses."""

from functools import partial

from rioni.domain.system.client_activity import resource_of, unused
from rioni.domain.system.system_events import AUDIT_LOG
from tests.support.builders import LATER, NOW, event_type, subscription


def test_event_types_that_nobody_uses_are_found():
    """Reference event-types#unused."""
    find = partial(unused, [event_type()], created_before=LATER)
    subscribed = subscription()
    assert [each.name for each in find([subscribed], ())] == ["order.created"]
    assert find([subscribed], {resource_of(event_type())}) == []
    assert find([subscribed], {subscribed.id}) == []


def test_young_event_types_and_those_of_the_broker_are_not_unused():
    """Reference event-types#unused."""
    assert unused([event_type()], [], (), created_before=NOW) == []
    assert unused([event_type(name=AUDIT_LOG)], [], (), created_before=LATER) == []
