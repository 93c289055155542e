"""Test cases of `unittest` with a broker."""

import unittest
from collections.abc import Mapping
from typing import ClassVar

from rioni.testing.broker import Broker


_shared = Broker()
"""The broker of all classes without their own settings; it ends with the process."""


class BrokerTestCase(unittest.TestCase):
    """A test case whose `broker` has the same contents at the beginning of each test, as the fixture `rioni`.

    With asyncio: `class OrderTest(BrokerTestCase, unittest.IsolatedAsyncioTestCase)`. Classes that override `setUp` or
    `setUpClass` call those of the base class first.
    """

    broker: ClassVar[Broker]
    settings: ClassVar[Mapping[str, object]] = {}
    """Settings of `rioni serve`: a class that names some has a separate broker."""

    @classmethod
    def setUpClass(cls) -> None:
        """Start the broker, unless a class before has."""
        super().setUpClass()
        cls.broker = cls.enterClassContext(Broker(cls.settings)) if cls.settings else _shared
        cls.broker.start()

    def setUp(self) -> None:
        """Undo at the end the changes of the test."""
        super().setUp()
        self.enterContext(self.broker.isolated())
