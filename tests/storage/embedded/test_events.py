from tests.contracts.event_store import EventStoreContract


class TestEmbeddedEventStore(EventStoreContract):
    pass
