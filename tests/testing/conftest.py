from collections.abc import Iterator

import pytest

from rioni.testing import Broker, launcher


@pytest.fixture(scope="package")
def launched() -> Iterator[None]:
    """Ends what brokers are forked from when the tests of this folder have run."""
    yield
    launcher.stop()


@pytest.fixture(scope="module")
def shared_broker(launched) -> Iterator[Broker]:
    """One for the tests of a file."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """A broker that is isolated for each test, like the fixture `rioni` of the plugin."""
    with shared_broker.isolated():
        yield shared_broker
