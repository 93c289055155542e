import pytest

from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import in_place
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry
from rioni.storage.event_stores import EventStoreRegistry


STORAGES = {"k": StorageEntry(id="k", storage_type=KAFKA, default=False)}


@pytest.mark.parametrize(("storage_id", "message"), [("k", "The storage k is of type kafka"), ("x", "no storage")])
def test_a_store_that_can_not_be_opened_is_named(storage_id, message):
    stores = EventStoreRegistry(STORAGES.get, {EMBEDDED: None}, in_place)
    with pytest.raises(Unavailable, match=message):
        stores.of(storage_id)
