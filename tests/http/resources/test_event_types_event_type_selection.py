"""The event types that a request selects."""

import contextlib
from types import SimpleNamespace

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.system.client_activity import ActivityTracker
from rioni.domain.ports.host import direct
from rioni.domain.system.client_activity import DAY_MS, PUBLISH, resource_of
from rioni.domain.timestamps import milliseconds
from rioni.http.resources.event_types import unused_for
from rioni.storage.embedded.expendable import EmbeddedActivity
from tests.support.broker import running_broker
from tests.support.builders import event_type_spec


@pytest.fixture
def dependencies(tmp_path):
    """A broker with two event types, and a clock a day later."""
    with running_broker(tmp_path / "data") as broker, contextlib.closing(EmbeddedActivity(tmp_path / "a.db")) as store:
        for name in ("used", "unused"):
            broker.do(CreateEventType(spec=event_type_spec(name=name)))
        broker.registry.refresh()
        created_ms = max(milliseconds(each.created_at) for each in broker.registry.event_types())
        broker.clock.advance(created_ms + DAY_MS - broker.clock.now_ms())
        yield SimpleNamespace(
            registry=broker.registry,
            clock=broker.clock,
            compute_pool=direct,
            activity=ActivityTracker(store, broker.clock, direct),
        )


def test_event_types_without_activity_for_some_days_are_unused(dependencies):
    """Reference event-types#unused."""
    registry = dependencies.registry
    dependencies.activity.record(PUBLISH, resource_of(registry.event_type("used")), "shop", 1)

    def unused():
        return [each.name for each in unused_for(1, registry.event_types(), dependencies)]

    assert unused() == []
    dependencies.clock.advance(1)
    assert unused() == ["unused"]
    dependencies.clock.advance(DAY_MS)
    assert unused() == ["used", "unused"]
