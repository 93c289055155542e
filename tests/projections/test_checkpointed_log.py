"""What those see who follow the log, and how they remember where they are."""

from functools import partial

import pytest

from rioni.commands.event_types import ChangeEventType, CreateEventType
from rioni.domain.event_types.event_type import EventType
from rioni.projections.checkpointed_log import SqlCheckpointedLogReader
from rioni.projections.fold import decode_state
from rioni.storage.sql import engines
from tests.support.broker import running_broker
from tests.support.builders import event_type_spec


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def trail(broker):
    return SqlCheckpointedLogReader(
        broker.log, partial(engines.reading, broker.engine), partial(engines.writing, broker.engine)
    )


def test_entries_come_with_the_state_before_and_after(broker, trail):
    broker.do(CreateEventType(spec=event_type_spec()))
    changed = event_type_spec(owning_application="other")
    broker.do(ChangeEventType(name="order.created", spec=changed))
    (change,) = trail.changes(trail.head() - 1, 10)
    before, after = (decode_state("event-type", body) for body in (change.before, change.after))
    assert isinstance(before, EventType)
    assert (before.owning_application, after.owning_application) == ("shop", "other")
    assert trail.state("event-type", "order.created", trail.head() - 1) == change.before
    assert trail.state("event-type", "order.created", 1) is None


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
def test_commands_are_never_cut(broker, trail, limit):
    for number in range(3):
        broker.do(CreateEventType(spec=event_type_spec(name=f"order.{number}")))
    position, seen = 0, []
    while page := trail.changes(position, limit):
        ids = [change.entry.origin.command_id for change in page]
        assert not set(ids) & set(seen)
        seen += ids
        position = page[-1].entry.position
    assert len(seen) == trail.head() == position


@pytest.mark.parametrize("limit", range(1, 10))
def test_commands_may_have_entries_of_others_in_between(broker, trail, limit):
    """A command that asks a store has several transactions; what others record meanwhile lies between them."""
    mine = broker.context()
    creation = CreateEventType(spec=event_type_spec(name="mine"), is_schema_checked=True)
    outside = broker.bus.transact(creation, mine)
    broker.do(CreateEventType(spec=event_type_spec(name="other")))
    broker.bus.transact(outside.work(), mine)
    position, seen = 0, []
    while page := trail.changes(position, limit):
        seen += [change.entry.position for change in page]
        position = seen[-1]
    assert seen == list(range(1, trail.head() + 1))


def test_a_follower_is_remembered_and_never_goes_back(trail):
    assert trail.checkpoint("somebody") == 0
    for position, expected in ((3, 3), (2, 3), (5, 5)):
        trail.save_checkpoint("somebody", position)
        assert trail.checkpoint("somebody") == expected
    assert trail.checkpoint("somebody else") == 0
