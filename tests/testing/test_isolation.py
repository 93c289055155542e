import pytest

from rioni.client import Admins, Attribute, NotFound, Storage, Subscription
from rioni.testing import Broker


def test_what_a_test_has_created_is_deleted(shared_broker: Broker):
    with shared_broker.isolated() as broker:
        client = broker.client()
        for name in ("order.created", "order.paid"):
            broker.create_event_type(name)
        subscription = client.subscriptions.create(
            Subscription(owning_application="shop", event_types=["order.created", "order.paid"])
        )
        client.storages.create(Storage(id="other", storage_type="embedded"))
    with shared_broker.isolated() as broker:
        client = broker.client()
        assert client.event_types.list() == []
        assert [each.id for each in client.storages.list()] == ["default"]
        with pytest.raises(NotFound):
            client.subscriptions.get(subscription.id)


def test_what_a_test_has_deleted_itself_is_no_error(shared_broker: Broker):
    with shared_broker.isolated() as broker:
        broker.create_event_type("order.created")
        broker.client().event_types.delete("order.created")
        broker.create_event_type("order.created")
    assert shared_broker.client().event_types.list() == []


def test_settings_are_set_back(shared_broker: Broker):
    shared_broker.client().settings.block("CONSUMER_APP", "before")
    with shared_broker.isolated() as broker:
        broker.create_event_type("order.created")
        settings = broker.client().settings
        settings.switch_feature("disable_event_type_deletion", enabled=True)
        settings.block("PRODUCER_APP", "shop")
        settings.unblock("CONSUMER_APP", "before")
        person = Attribute(data_type="user", value="jane")
        admins = settings.admins()
        settings.set_admins(Admins(admins=[person], readers=[person], writers=[person]))
        assert settings.admins() != admins
    settings = shared_broker.client().settings
    assert settings.admins() == admins
    assert not any(each.enabled for each in settings.features() if each.feature.startswith("disable"))
    assert settings.blacklist().producers.apps == []
    assert settings.blacklist().consumers.apps == ["before"]
    assert shared_broker.client().event_types.list() == []


def test_what_there_was_before_stays_and_its_events_do_not_count(shared_broker: Broker):
    with shared_broker.isolated() as outside:
        outside.create_event_type("order.created", partitions=2)
        outside.publish("order.created", *({"order": number} for number in range(10)))
        with outside.isolated() as broker:
            assert broker.published("order.created") == []
            broker.publish("order.created", {"order": 10})
            assert [event["order"] for event in broker.expect("order.created")] == [10]
        assert len(outside.published("order.created")) == 11


def test_faults_that_did_not_happen_are_forgotten(shared_broker: Broker):
    with shared_broker.isolated() as broker:
        broker.fail_next(503, count=100)
    assert shared_broker.clear_faults() == 0
    shared_broker.client(attempts=1).event_types.list()


def test_in_a_broker_started_elsewhere_only_what_the_test_has_created_is_deleted(shared_broker: Broker):
    with shared_broker.isolated(), Broker.at(shared_broker.url) as elsewhere:
        with elsewhere.isolated() as broker:
            broker.create_event_type("order.created")
            client = broker.client()
            client.subscriptions.create(Subscription(owning_application="shop", event_types=["order.created"]))
            shared_broker.create_event_type("of.others")
        assert [each.name for each in shared_broker.client().event_types.list()] == ["of.others"]
