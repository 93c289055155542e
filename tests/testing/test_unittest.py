import unittest

from rioni.client import EventType, Schema
from rioni.testing.unittest import BrokerTestCase


class SharedTest(BrokerTestCase):
    def test_each_test_begins_with_an_empty_broker(self):
        self._create()

    def test_this_one_does_as_well(self):
        self._create()

    def _create(self):
        assert self.broker.client().event_types.list() == []
        self.broker.create_event_type("order.created")


class OwnTest(BrokerTestCase, unittest.IsolatedAsyncioTestCase):
    settings = {"owning_applications": "shop"}  # noqa: RUF012 - as a user would write it

    async def test_a_class_with_settings_has_a_broker_of_its_own(self):
        async with self.broker.async_client() as client:
            schema = Schema.json({"type": "object"})
            await client.event_types.create(EventType(name="order.created", owning_application="shop", schema=schema))
        assert self.broker.url != SharedTest.broker.url if hasattr(SharedTest, "broker") else True
