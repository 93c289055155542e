"""Event types that no client uses."""

from functools import partial

from rioni.domain.subscriptions.activity import resource_of
from rioni.domain.system.system_event_types import AUDIT_LOG
from rioni.domain.system.unused_event_types import unused
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
