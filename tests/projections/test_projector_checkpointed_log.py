"""Entries that log consumers read, and their stored checkpoints."""

from functools import partial

import pytest

from rioni.commands.event_types import ChangeEventType, CreateEventType
from rioni.domain.event_types.event_type import EventType
from rioni.projections.fold import decode_state
from rioni.projections.projector import SqlCheckpointedLogReader
from rioni.storage.sql import engines
from tests.support.broker import running_broker
from tests.support.builders import event_type_spec


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def reader(broker):
    return SqlCheckpointedLogReader(
        broker.log, partial(engines.reading, broker.engine), partial(engines.writing, broker.engine)
    )


def test_entries_are_read_with_the_state_before_and_after(broker, reader):
    broker.do(CreateEventType(spec=event_type_spec()))
    changed = event_type_spec(owning_application="other")
    broker.do(ChangeEventType(name="order.created", spec=changed))
    (change,) = reader.changes(reader.head() - 1, 10)
    before, after = (decode_state("event-type", body) for body in (change.before, change.after))
    assert isinstance(before, EventType)
    assert (before.owning_application, after.owning_application) == ("shop", "other")
    assert reader.state("event-type", "order.created", reader.head() - 1) == change.before
    assert reader.state("event-type", "order.created", 1) is None


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
def test_entries_of_one_command_are_read_together(broker, reader, limit):
    for number in range(3):
        broker.do(CreateEventType(spec=event_type_spec(name=f"order.{number}")))
    position, seen = 0, []
    while page := reader.changes(position, limit):
        ids = [change.entry.origin.command_id for change in page]
        assert not set(ids) & set(seen)
        seen += ids
        position = page[-1].entry.position
    assert len(seen) == reader.head() == position


@pytest.mark.parametrize("limit", range(1, 10))
def test_entries_of_other_commands_may_lie_between_those_of_one(broker, reader, limit):
    """A command that calls a store has several transactions; entries of others may be recorded between them."""
    mine = broker.context()
    creation = CreateEventType(spec=event_type_spec(name="mine"), is_schema_checked=True)
    outside = broker.bus.transact(creation, mine)
    broker.do(CreateEventType(spec=event_type_spec(name="other")))
    broker.bus.transact(outside.work(), mine)
    position, seen = 0, []
    while page := reader.changes(position, limit):
        seen += [change.entry.position for change in page]
        position = seen[-1]
    assert seen == list(range(1, reader.head() + 1))


def test_a_checkpoint_is_stored_and_never_moves_back(reader):
    assert reader.checkpoint("one") == 0
    for position, expected in ((3, 3), (2, 3), (5, 5)):
        reader.save_checkpoint("one", position)
        assert reader.checkpoint("one") == expected
    assert reader.checkpoint("other") == 0
