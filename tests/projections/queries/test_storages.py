from rioni.commands.system.storages import CreateStorage
from rioni.domain.system.storages import StorageEntry
from rioni.projections.queries.storages import all_storages
from rioni.storage.sql import engines


def test_storages_are_listed_by_their_ids(broker):
    """Reference settings-and-storages#list-storages."""
    for storage_id in ("second", "another", "third"):
        broker.do(CreateStorage(storage=StorageEntry(id=storage_id, storage_type="embedded", default=False)))
    with engines.reading(broker.engine) as connection:
        found = all_storages(connection)
    assert [(each.id, each.default) for each in found] == [
        ("another", False),
        ("default", True),
        ("second", False),
        ("third", False),
    ]
