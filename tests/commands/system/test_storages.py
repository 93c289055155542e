import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.system.storages import CreateStorage, DeleteStorage, MoveStorage, SetDefaultStorage
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import AdminOnly, InUse, NotFound, Unavailable
from rioni.domain.system.storages import StorageEntry
from tests.support.builders import event_type_spec


def embedded(storage_id, *, default=False):
    return CreateStorage(storage=StorageEntry(id=storage_id, storage_type="embedded", default=default))


def kafka(storage_id, **configuration):
    entry = StorageEntry(id=storage_id, storage_type="kafka", default=False, configuration=configuration)
    return CreateStorage(storage=entry)


def defaults(broker):
    broker.registry.refresh()
    return [
        storage_id
        for storage_id in ("default", "a", "b")
        if getattr(broker.registry.storage(storage_id), "default", False)
    ]


def test_there_is_exactly_one_default_storage(broker):
    broker.do(embedded("a"))
    broker.do(embedded("b", default=True))
    assert defaults(broker) == ["b"]
    broker.do(SetDefaultStorage(storage_id="a"))
    assert defaults(broker) == ["a"]
    head = broker.log.head()
    broker.do(SetDefaultStorage(storage_id="a"))
    assert broker.log.head() == head, "it is true already"


def test_an_unusable_storage_is_rejected_when_it_is_to_be_used(broker):
    broker.do(kafka("a", zk_address="z"))
    broker.do(SetDefaultStorage(storage_id="a"))
    with pytest.raises(Unavailable, match="kafka_configuration"):
        broker.do(CreateEventType(spec=event_type_spec()))


def test_credentials_reach_neither_the_log_nor_the_read_models(broker):
    broker.do(kafka("a", nested=[{"SASL_PASSWORD": "s3cret"}], pw="s3cret", zk_address="u:s3cret@z:1"))
    stored = [entry.event.encode() for entry in broker.log.entries(0, 100)]
    assert any(b'"configuration":{"zk_address":"z:1"}' in event for event in stored)
    assert not any(b"s3cret" in event for event in stored)


def test_a_storage_that_holds_events_is_not_deleted(broker):
    broker.do(embedded("a", default=True))
    broker.do(CreateEventType(spec=event_type_spec()))
    broker.do(SetDefaultStorage(storage_id="default"))
    with pytest.raises(InUse):
        broker.do(DeleteStorage(storage_id="a"))


def test_a_storage_moved_to_kafka_is_opened_there(broker):
    broker.do(embedded("a"))
    broker.do(MoveStorage(storage_id="a", storage_type="kafka"))
    broker.registry.refresh()
    assert broker.registry.storage("a").storage_type == "kafka"
    head = broker.log.head()
    broker.do(MoveStorage(storage_id="a", storage_type="kafka"))
    assert broker.log.head() == head, "it is true already"
    with pytest.raises(NotFound):
        broker.do(MoveStorage(storage_id="nowhere", storage_type="kafka"))


def test_the_id_of_a_deleted_storage_may_be_reused_with_another_type(broker):
    broker.do(embedded("a", default=True))
    assert broker.stores.of("a").bounds
    broker.do(SetDefaultStorage(storage_id="default"))
    broker.do(DeleteStorage(storage_id="a"))
    with pytest.raises(Unavailable, match="There is no storage"):
        broker.stores.of("a")
    broker.do(kafka("a"))
    with pytest.raises(Unavailable, match="kafka_configuration"):
        broker.stores.of("a")


@pytest.mark.parametrize("command", [embedded("a"), SetDefaultStorage(storage_id="a"), DeleteStorage(storage_id="a")])
def test_only_administrators_change_storages(broker, command):
    with pytest.raises(AdminOnly):
        broker.do(command, Subject(name="bob"))
